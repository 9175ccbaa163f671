// SPDX-License-Identifier: GPL-2.0
/*
 * Rings: two pairs, control (frames of ours, copied) and data (user pages).
 *
 * Up: receive frames posted, rings started, then paths. Down: no more is
 * posted, paths disabled, rings stopped (which hands back every frame), then
 * all that was under way fails and memory is let go. Rings run in interrupt
 * mode; ls_poll() takes finished frames off them in between. Both ways may
 * hold frames of one ring at once, so what was posted is worked off in the
 * order of posting, whichever way noted that it is done.
 *
 * Locks: ls_link.io, a mutex, guards all that moves bytes. Callbacks of rings
 * run in process context and take it; so it is never held over
 * tb_ring_stop(), which waits for them.
 */
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/version.h>

#include "linkspan.h"

#define LS_SOF		1
#define LS_EOF_CONTROL	2

static struct device *ls_dma_dev(struct ls_link *lk)
{
	return tb_ring_dma_device(lk->pair[0].tx);
}

static void ls_pairs_free(struct ls_link *lk)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (lk->pair[i].rx)
			tb_ring_free(lk->pair[i].rx);
		if (lk->pair[i].tx)
			tb_ring_free(lk->pair[i].tx);
		lk->pair[i].rx = NULL;
		lk->pair[i].tx = NULL;
	}
}

static int ls_pair_alloc(struct ls_link *lk, int i, u32 size, u16 eof_mask)
{
	struct tb_nhi *nhi = lk->xd->tb->nhi;
	unsigned int flags = RING_FLAG_FRAME | RING_FLAG_E2E;
	struct ls_pair *p = &lk->pair[i];

	p->tx = tb_ring_alloc_tx(nhi, -1, size, flags);
	if (!p->tx)
		return -ENOMEM;
	p->rx = tb_ring_alloc_rx(nhi, -1, size, flags, p->tx->hop, BIT(LS_SOF), eof_mask, NULL, NULL);
	if (!p->rx) {
		tb_ring_free(p->tx);
		p->tx = NULL;
		return -ENOMEM;
	}
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 2, 0)
	tb_ring_throttling(p->tx, ls_throttling_ns);
	tb_ring_throttling(p->rx, ls_throttling_ns);
#endif
	return 0;
}

static int ls_frame_page(struct ls_link *lk, struct ls_frame *f, enum dma_data_direction dir)
{
	f->page = alloc_page(GFP_KERNEL);
	if (!f->page)
		return -ENOMEM;
	f->dma = dma_map_page(ls_dma_dev(lk), f->page, 0, LS_FRAME_BYTES, dir);
	if (dma_mapping_error(ls_dma_dev(lk), f->dma)) {
		__free_page(f->page);
		f->page = NULL;
		return -ENOMEM;
	}
	return 0;
}

/* Frames in a fixed order: control out, control in, copied out, copied in, then the plain ones. */
static enum dma_data_direction ls_frame_dir(u32 i)
{
	if (i < LS_CTL_FRAMES || (i >= 2 * LS_CTL_FRAMES && i < 2 * LS_CTL_FRAMES + LS_BOUNCES))
		return DMA_TO_DEVICE;
	return DMA_FROM_DEVICE;
}

static void ls_frames_free(struct ls_link *lk)
{
	u32 i;

	for (i = 0; lk->frames && i < lk->nframes; i++) {
		struct ls_frame *f = &lk->frames[i];

		if (!f->page)
			continue;
		dma_unmap_page(ls_dma_dev(lk), f->dma, LS_FRAME_BYTES, ls_frame_dir(i));
		__free_page(f->page);
	}
	kvfree(lk->frames);
	lk->frames = NULL;
	INIT_LIST_HEAD(&lk->ctl_free);
	INIT_LIST_HEAD(&lk->ctl_posted);
	INIT_LIST_HEAD(&lk->tx_free);
	INIT_LIST_HEAD(&lk->tx_bounce);
	INIT_LIST_HEAD(&lk->rx_free);
	INIT_LIST_HEAD(&lk->rx_bounce);
	INIT_LIST_HEAD(&lk->rx_posted);
}

static int ls_frames_alloc(struct ls_link *lk)
{
	u32 copied = 2 * LS_CTL_FRAMES + 2 * LS_BOUNCES;
	u32 plain = lk->ring_size - LS_BOUNCES - 1;
	u32 i;
	int ret;

	/* A ring holds one frame less than its size; what is more waits in the core's queue. */
	if (lk->ring_size <= LS_BOUNCES + 1)
		plain = 1;
	lk->nframes = copied + 2 * plain;
	lk->frames = kvcalloc(lk->nframes, sizeof(*lk->frames), GFP_KERNEL);
	if (!lk->frames)
		return -ENOMEM;
	for (i = 0; i < lk->nframes; i++) {
		struct ls_frame *f = &lk->frames[i];

		f->lk = lk;
		INIT_LIST_HEAD(&f->rf.list);
		if (i < copied) {
			ret = ls_frame_page(lk, f, ls_frame_dir(i));
			if (ret)
				return ret;
		}
		if (i < LS_CTL_FRAMES)
			list_add_tail(&f->list, &lk->ctl_free);
		else if (i < 2 * LS_CTL_FRAMES)
			INIT_LIST_HEAD(&f->list);
		else if (i < 2 * LS_CTL_FRAMES + LS_BOUNCES)
			list_add_tail(&f->list, &lk->tx_bounce);
		else if (i < copied)
			list_add_tail(&f->list, &lk->rx_bounce);
		else if (i < copied + plain)
			list_add_tail(&f->list, &lk->tx_free);
		else
			list_add_tail(&f->list, &lk->rx_free);
	}
	return 0;
}

static void ls_tx_done(struct tb_ring *ring, struct ring_frame *rf, bool canceled)
{
	struct ls_frame *f = container_of(rf, struct ls_frame, rf);
	struct ls_link *lk = f->lk;

	mutex_lock(&lk->io);
	if (ring == lk->pair[1].tx) {
		if (!canceled)
			ls_data_tx(lk, f);
		list_add_tail(&f->list, f->page ? &lk->tx_bounce : &lk->tx_free);
	} else {
		list_add_tail(&f->list, &lk->ctl_free);
	}
	if (!canceled)
		ls_pump(lk);
	mutex_unlock(&lk->io);
}

/* What was posted first and is done, in order. */
static void ls_drain(struct ls_link *lk)
{
	struct ls_frame *f;

	while (lk->running && !list_empty(&lk->ctl_posted)) {
		f = list_first_entry(&lk->ctl_posted, struct ls_frame, list);
		if (!f->done)
			break;
		list_del_init(&f->list);
		dma_sync_single_for_cpu(ls_dma_dev(lk), f->dma, LS_FRAME_BYTES, DMA_FROM_DEVICE);
		ls_control(lk, f);
		dma_sync_single_for_device(ls_dma_dev(lk), f->dma, LS_FRAME_BYTES, DMA_FROM_DEVICE);
		ls_frame_rx(lk, 0, f);
	}
	while (lk->running && !list_empty(&lk->rx_posted)) {
		f = list_first_entry(&lk->rx_posted, struct ls_frame, list);
		if (!f->done)
			break;
		list_del_init(&f->list);
		if (f->page)
			dma_sync_single_for_cpu(ls_dma_dev(lk), f->dma, LS_FRAME_BYTES, DMA_FROM_DEVICE);
		ls_data_rx(lk, f);
		if (f->page)
			dma_sync_single_for_device(ls_dma_dev(lk), f->dma, LS_FRAME_BYTES, DMA_FROM_DEVICE);
		list_add_tail(&f->list, f->page ? &lk->rx_bounce : &lk->rx_free);
	}
	ls_post_rx(lk);
	ls_pump(lk);
}

static void ls_rx_done(struct tb_ring *ring, struct ring_frame *rf, bool canceled)
{
	struct ls_frame *f = container_of(rf, struct ls_frame, rf);
	struct ls_link *lk = f->lk;

	if (canceled)
		return;
	mutex_lock(&lk->io);
	f->done = true;
	if (lk->running)
		ls_drain(lk);
	mutex_unlock(&lk->io);
}

/* Looks at the rings without an interrupt. io is held. */
void ls_poll(struct ls_link *lk)
{
	struct ring_frame *rf;
	int i;

	if (!lk->running)
		return;
	for (i = 0; i < 2; i++) {
		while ((rf = tb_ring_poll(lk->pair[i].rx)))
			container_of(rf, struct ls_frame, rf)->done = true;
	}
	ls_drain(lk);
}

int ls_frame_rx(struct ls_link *lk, int pair, struct ls_frame *f)
{
	f->done = false;
	f->rf.callback = ls_rx_done;
	f->rf.size = 0;
	if (pair == 0 || f->page)
		f->rf.buffer_phy = f->dma;
	list_add_tail(&f->list, pair ? &lk->rx_posted : &lk->ctl_posted);
	return tb_ring_rx(lk->pair[pair].rx, &f->rf);
}

void ls_frame_tx(struct ls_link *lk, int pair, struct ls_frame *f, u32 len)
{
	f->rf.callback = ls_tx_done;
	f->rf.size = len & LS_FRAME_MASK;
	f->rf.sof = LS_SOF;
	if (pair) {
		/* Counts through the end marks: a frame that gets lost is noticed. */
		f->rf.eof = 1 + lk->tx_seq++ % 15;
		lk->tx_frames++;
		lk->tx_bytes += len;
	} else {
		f->rf.eof = LS_EOF_CONTROL;
		lk->control++;
	}
	if (f->page) {
		f->rf.buffer_phy = f->dma;
		dma_sync_single_for_device(ls_dma_dev(lk), f->dma, LS_FRAME_BYTES, DMA_TO_DEVICE);
	}
	/* Fails only while the ring is being stopped: then all fails. */
	if (tb_ring_tx(lk->pair[pair].tx, &f->rf))
		INIT_LIST_HEAD(&f->list);
}

int ls_rings_up(struct ls_link *lk)
{
	u32 size = READ_ONCE(ls_ring_size);
	int i, ret;

	mutex_lock(&lk->io);
	ret = ls_pair_alloc(lk, 0, LS_CTL_FRAMES * 2, BIT(LS_EOF_CONTROL));
	if (ret)
		goto err;
	for (;; size /= 2) {
		ret = ls_pair_alloc(lk, 1, size, 0xfffe);
		if (!ret || size <= 64)
			break;
		dev_info(&lk->dev, "no memory for rings of %u entries, trying %u\n", size, size / 2);
	}
	if (ret)
		goto err;
	lk->ring_size = size;
	ret = ls_frames_alloc(lk);
	if (ret)
		goto err;
	lk->tx_seq = 0;
	lk->rx_seq = 0;
	lk->ctl_tx_seq = 0;
	lk->ctl_rx_seq = 0;
	for (i = 0; i < 2; i++)
		tb_ring_start(lk->pair[i].rx);
	for (i = LS_CTL_FRAMES; i < 2 * LS_CTL_FRAMES && !ret; i++)
		ret = ls_frame_rx(lk, 0, &lk->frames[i]);
	for (i = 0; i < 2; i++)
		tb_ring_start(lk->pair[i].tx);
	lk->running = !ret;
	lk->sending = false;
	mutex_unlock(&lk->io);

	for (i = 0; i < 2 && !ret; i++) {
		struct ls_pair *p = &lk->pair[i];

		ret = tb_xdomain_enable_paths(lk->xd, p->out_hop, p->tx->hop, p->in_hop, p->rx->hop);
		if (!ret)
			lk->paths++;
	}
	if (ret)
		ls_rings_down(lk);
	return ret;
err:
	ls_frames_free(lk);
	ls_pairs_free(lk);
	mutex_unlock(&lk->io);
	return ret;
}

void ls_rings_down(struct ls_link *lk)
{
	int i;

	mutex_lock(&lk->io);
	lk->running = false;
	lk->sending = false;
	mutex_unlock(&lk->io);
	if (!lk->pair[0].tx)
		return;
	cancel_delayed_work_sync(&lk->watch);
	for (i = 0; i < lk->paths; i++) {
		struct ls_pair *p = &lk->pair[i];

		tb_xdomain_disable_paths(lk->xd, p->out_hop, p->tx->hop, p->in_hop, p->rx->hop);
	}
	lk->paths = 0;
	for (i = 0; i < 2; i++) {
		tb_ring_stop(lk->pair[i].rx);
		tb_ring_stop(lk->pair[i].tx);
	}
	mutex_lock(&lk->io);
	ls_flow_reset(lk);
	ls_frames_free(lk);
	ls_pairs_free(lk);
	mutex_unlock(&lk->io);
	/* Memory of operations that had been given up is let go before the device may vanish. */
	flush_work(&lk->reap_work);
}
