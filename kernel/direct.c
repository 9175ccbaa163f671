// SPDX-License-Identifier: GPL-2.0
/*
 * The mode direct: rings carry messages of programs (control.c, data.c, flow.c,
 * memory.c, chardev.c). All pairs carry data, into user pages; the
 * first one carries control as well, so there both come into frames of ours.
 *
 * Only ls_poll() takes frames off a ring, so they come in the order of posting.
 *
 * Locks: ls_link.io, a mutex, guards all that moves bytes; io_work takes it,
 * so it is not held over waiting for that. ls_link.masked is atomic.
 */
#include <linux/slab.h>

#include "linkspan.h"

#define LS_SHARED_SIZE	512	/* entries of the rings of the first pair */
#define LS_SIZE_LEAST	64
/* Smaller rings do as well: the OOM killer must not run for the sake of large ones. */
#define LS_GFP		(GFP_KERNEL | __GFP_RETRY_MAYFAIL | __GFP_NOWARN)

static int ls_frame_page(struct ls_link *lk, struct ls_frame *f, bool out)
{
	f->out = out;
	f->page = alloc_page(LS_GFP);
	if (!f->page)
		return -ENOMEM;
	f->dma = dma_map_page(ls_dma_dev(lk), f->page, 0, LS_FRAME_BYTES, out ? DMA_TO_DEVICE : DMA_FROM_DEVICE);
	if (dma_mapping_error(ls_dma_dev(lk), f->dma)) {
		__free_page(f->page);
		f->page = NULL;
		return -ENOMEM;
	}
	return 0;
}

static void ls_frames_free(struct ls_link *lk)
{
	u32 i;

	for (i = 0; lk->frames && i < lk->nframes; i++) {
		struct ls_frame *f = &lk->frames[i];

		if (!f->page)
			continue;
		dma_unmap_page(ls_dma_dev(lk), f->dma, LS_FRAME_BYTES, f->out ? DMA_TO_DEVICE : DMA_FROM_DEVICE);
		__free_page(f->page);
	}
	kvfree(lk->frames);
	lk->frames = NULL;
	INIT_LIST_HEAD(&lk->ctl_free);
	INIT_LIST_HEAD(&lk->unacked);
	lk->nctl_free = 0;
	for (i = 0; i < LS_PAIRS; i++) {
		INIT_LIST_HEAD(&lk->pair[i].tx_free);
		INIT_LIST_HEAD(&lk->pair[i].tx_bounce);
		INIT_LIST_HEAD(&lk->pair[i].rx_free);
		INIT_LIST_HEAD(&lk->pair[i].rx_bounce);
	}
}

/* So many frames of a kind, the next ones of all. */
static int ls_frames_some(struct ls_link *lk, struct list_head *list, u32 count, bool page, bool out)
{
	int ret = 0;

	for (; count && !ret; count--) {
		struct ls_frame *f = &lk->frames[lk->nframes++];

		INIT_LIST_HEAD(&f->rf.list);
		if (page)
			ret = ls_frame_page(lk, f, out);
		if (list)
			list_add_tail(&f->list, list);
		else
			INIT_LIST_HEAD(&f->list);
	}
	return ret;
}

/* A ring holds one frame less than its size; more would wait in the core, and polling does not move that. */
static int ls_frames_alloc(struct ls_link *lk)
{
	u32 bounces = min_t(u32, LS_BOUNCES, lk->ring_size / 4);
	u32 plain = lk->ring_size - bounces - 1, sent = min_t(u32, plain, LS_WINDOW);
	u32 all = 2 * LS_CTL_FRAMES + 2 * LS_SHARED + (lk->pairs - 1) * (2 * bounces + plain + sent);
	int ret, i;

	lk->nframes = 0;
	lk->frames = kvcalloc(all, sizeof(*lk->frames), LS_GFP);
	if (!lk->frames)
		return -ENOMEM;
	/* Control in this order: ls_poll() and ls_direct_start() know them by their place. */
	ret = ls_frames_some(lk, NULL, LS_CTL_FRAMES, true, true);
	for (i = 0; i < LS_CTL_FRAMES && !ret; i++)
		ls_ctl_free(lk, &lk->frames[i]);
	ret = ret ?: ls_frames_some(lk, NULL, LS_CTL_FRAMES, true, false);
	ret = ret ?: ls_frames_some(lk, &lk->pair[0].tx_bounce, LS_SHARED, true, true);
	ret = ret ?: ls_frames_some(lk, &lk->pair[0].tx_free, LS_SHARED, false, true);
	for (i = 1; i < lk->pairs && !ret; i++) {
		struct ls_pair *p = &lk->pair[i];

		ret = ls_frames_some(lk, &p->tx_bounce, bounces, true, true);
		ret = ret ?: ls_frames_some(lk, &p->rx_bounce, bounces, true, false);
		ret = ret ?: ls_frames_some(lk, &p->tx_free, sent, false, true);
		ret = ret ?: ls_frames_some(lk, &p->rx_free, plain, false, false);
	}
	return ret;
}

static struct ls_frame *ls_take_frame(struct ls_link *lk, struct tb_ring *ring)
{
	struct ring_frame *rf = tb_ring_poll(ring);

	if (!rf)
		return NULL;
	/* What it brought is not read before the mark that it has: the core leaves that to us. */
	dma_rmb();
	lk->polled++;
	return container_of(rf, struct ls_frame, rf);
}

/* Takes finished frames off all rings and sends what there is to send. True when there may be more. io is held. */
bool ls_poll(struct ls_link *lk)
{
	struct device *dev;
	struct ls_frame *f;
	u32 left;
	int i;

	if (!lk->running)
		return false;
	lk->polls++;
	dev = ls_dma_dev(lk);
	for (i = 0; i < lk->pairs; i++) {
		struct ls_pair *p = &lk->pair[i];

		while ((f = ls_take_frame(lk, p->tx))) {
			lk->came |= BIT(2 * i);
			if (f < lk->frames + LS_CTL_FRAMES) {
				ls_ctl_sent(lk, f);
				continue;
			}
			ls_data_tx(lk, f);
			list_add_tail(&f->list, f->page ? &p->tx_bounce : &p->tx_free);
		}
	}
	/* Posted again at once, so a busy peer could go on forever. */
	for (left = LS_CTL_FRAMES; left && lk->running && (f = ls_take_frame(lk, lk->pair[0].rx)); left--) {
		lk->came |= BIT(1);
		dma_sync_single_for_cpu(dev, f->dma, LS_FRAME_BYTES, DMA_FROM_DEVICE);
		if (f->rf.sof != LS_SOF)
			ls_data_shared(lk, f);
		else
			ls_control(lk, f);
		dma_sync_single_for_device(dev, f->dma, LS_FRAME_BYTES, DMA_FROM_DEVICE);
		ls_frame_rx(lk, 0, f);
	}
	for (i = 1; i < lk->pairs; i++) {
		struct ls_pair *p = &lk->pair[i];

		while (lk->running && (f = ls_take_frame(lk, p->rx))) {
			lk->came |= BIT(2 * i + 1);
			if (f->page)
				dma_sync_single_for_cpu(dev, f->dma, LS_FRAME_BYTES, DMA_FROM_DEVICE);
			ls_data_rx(lk, i, f);
			if (f->page)
				dma_sync_single_for_device(dev, f->dma, LS_FRAME_BYTES, DMA_FROM_DEVICE);
			list_add_tail(&f->list, f->page ? &p->rx_bounce : &p->rx_free);
			/* A sender that is as fast has us here for long. */
			ls_ctl_counts(lk);
		}
	}
	ls_post_rx(lk);
	ls_pump(lk);
	return !left && lk->running;
}

/* Whether somebody waits for frames that TX rings are done with. io is held. */
bool ls_tx_wanted(struct ls_link *lk)
{
	return !lk->running || !ls_ctl_frame(lk) || ls_data_waits(lk);
}

/* Has these rings unmasked once more. */
void ls_unmask_soon(struct ls_link *lk, unsigned long rings)
{
	int bit;

	if (!rings)
		return;
	for (bit = 0; bit < LS_RINGS; bit++) {
		if (rings & BIT(bit))
			set_bit(bit, &lk->masked);
	}
	queue_work(ls_io_wq, &lk->io_work);
}

void ls_io_work(struct work_struct *work)
{
	struct ls_link *lk = container_of(work, struct ls_link, io_work);
	unsigned long masked = 0, quiet = 0;
	bool more;
	int bit;

	for (bit = 0; bit < LS_RINGS; bit++) {
		if (test_and_clear_bit(bit, &lk->masked))
			masked |= BIT(bit);
	}
	mutex_lock(&lk->io);
	more = ls_poll(lk);
	/* That a frame was sent is of no interest to anybody until they run out: TX rings stay masked until then. */
	for (bit = 0; bit < LS_RINGS; bit += 2)
		quiet |= ls_tx_wanted(lk) ? 0 : BIT(bit);
	if (more || !lk->running)
		quiet = ~0UL;
	for (bit = 0; bit < LS_RINGS; bit++) {
		if (!(masked & BIT(bit)))
			continue;
		if (quiet & BIT(bit))
			set_bit(bit, &lk->masked);
		else
			ls_ring_unmask(ls_ring(lk, bit));
	}
	/* What was finished between the look and the unmasking may have told nobody, and has set the status again. */
	if (masked & ~quiet) {
		lk->came = 0;
		more |= ls_poll(lk);
		ls_unmask_soon(lk, lk->came & masked & ~quiet);
	}
	mutex_unlock(&lk->io);
	if (more)
		queue_work(ls_io_wq, &lk->io_work);
}

int ls_frame_rx(struct ls_link *lk, int pair, struct ls_frame *f)
{
	f->rf.size = 0;
	if (f->page)
		f->rf.buffer_phy = f->dma;
	return tb_ring_rx(lk->pair[pair].rx, &f->rf);
}

void ls_frame_tx(struct ls_link *lk, int pair, struct ls_frame *f, u32 len, u8 sof, u8 eof)
{
	f->rf.size = len & LS_FRAME_MASK;
	f->rf.sof = sof;
	f->rf.eof = eof;
	if (f->page) {
		f->rf.buffer_phy = f->dma;
		dma_sync_single_for_device(ls_dma_dev(lk), f->dma, LS_FRAME_BYTES, DMA_TO_DEVICE);
	}
	/* Fails only while the ring is being stopped: then all fails. */
	tb_ring_tx(lk->pair[pair].tx, &f->rf);
}

static int ls_rings_some(struct ls_link *lk, int *none)
{
	int ret = 0, i;

	*none = 0;
	for (i = 1; i < lk->pairs && !ret; i++) {
		ret = ls_pair_alloc(lk, i, lk->ring_size);
		*none = ret ? i : 0;
	}
	ret = ret ?: ls_frames_alloc(lk);
	if (ret) {
		ls_frames_free(lk);
		ls_pairs_free(lk, 1);
	}
	return ret;
}

static int ls_direct_prepare(struct ls_link *lk)
{
	u32 wanted = READ_ONCE(ls_ring_size), size = wanted;
	int ret, none = 0;

	lk->sending = false;
	ret = ls_pair_alloc(lk, 0, LS_SHARED_SIZE);
	if (ret)
		return ret;
	for (;; size /= 2) {
		lk->ring_size = size;
		ret = ls_rings_some(lk, &none);
		if (!ret || size <= LS_SIZE_LEAST || lk->pairs == 1)
			break;
		dev_dbg(&lk->dev, "no rings of %u entries, trying %u\n", size, size / 2);
	}
	if (ret)
		return none ? ls_cannot(lk, none, LS_PAIR_NO_RING, ret) : ret;
	if (size < wanted)
		dev_info(&lk->dev, "no memory for rings of %u entries: they have %u\n", wanted, size);
	ls_ctl_reset(lk);
	ls_data_reset(lk);
	return 0;
}

static int ls_direct_start(struct ls_link *lk)
{
	int ret = 0, i;

	for (i = LS_CTL_FRAMES; i < 2 * LS_CTL_FRAMES && !ret; i++)
		ret = ls_frame_rx(lk, 0, &lk->frames[i]);
	/* For the frame that shows that the path carries any. */
	for (i = 1; i < lk->pairs && !ret; i++)
		ret = ls_post_spare(lk, i);
	return ret;
}

static void ls_direct_event(struct ls_link *lk, int ring)
{
	set_bit(ring, &lk->masked);
	queue_work(ls_io_wq, &lk->io_work);
}

static void ls_direct_up(struct ls_link *lk)
{
	lk->sending = true;
	/* The peer may still wait for this. */
	lk->probe_due = true;
	ls_pump(lk);
}

static bool ls_direct_used(struct ls_link *lk)
{
	bool used = !list_empty(&lk->files);
	int i;

	for (i = 0; i < LS_CHANNELS; i++)
		used |= lk->chans[i].remote_open;
	return used;
}

static void ls_direct_quiet(struct ls_link *lk)
{
	cancel_delayed_work_sync(&lk->tick);
}

static void ls_direct_idle(struct ls_link *lk)
{
	cancel_work_sync(&lk->io_work);
	lk->masked = 0;
}

static void ls_direct_release(struct ls_link *lk)
{
	lk->sending = false;
	ls_flow_reset(lk);
	ls_frames_free(lk);
}

const struct ls_client ls_direct = {
	.name = "direct",
	.prepare = ls_direct_prepare,
	.start = ls_direct_start,
	.event = ls_direct_event,
	.look = ls_poll,
	.probe = ls_ctl_probe,
	.up = ls_direct_up,
	.used = ls_direct_used,
	.quiet = ls_direct_quiet,
	.idle = ls_direct_idle,
	.release = ls_direct_release,
};
