// SPDX-License-Identifier: GPL-2.0
/*
 * Rings: as many pairs as both hosts have. All carry data, into user pages; the
 * first one carries control as well, so there both come into frames of ours.
 *
 * Up: rings started, receive frames posted, then paths. Down: no more is
 * posted, paths disabled, rings stopped (which hands back every frame), then
 * all that was under way fails and memory is let go.
 *
 * All rings are polled: an interrupt masks its ring and queues io_work,
 * which takes what is finished off every ring and unmasks. The core's other
 * way, callbacks from its own work, loses interrupts: the handler's clearing
 * of the status bit is a posted write, so a frame that finishes before the
 * write arrives, and after that work has looked, is cleared with the rest and
 * said by nobody. Masking reads the mask back, and with it the clearing has
 * arrived before io_work looks. Only ls_poll() takes frames off a ring, so
 * they come in the order of posting.
 *
 * Locks: ls_link.io, a mutex, guards all that moves bytes; io_work takes it,
 * so it is not held over waiting for that. ls_link.masked is atomic.
 */
#include <linux/delay.h>
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "linkspan.h"

#define LS_PDFS		0xfffe	/* SOF and EOF marks that are taken */
#define LS_SHARED_SIZE	512	/* entries of the rings of the first pair */
#define LS_SIZE_LEAST	64
/* Smaller rings do as well: the OOM killer must not run for the sake of large ones. */
#define LS_GFP		(GFP_KERNEL | __GFP_RETRY_MAYFAIL | __GFP_NOWARN)

static struct device *ls_dma_dev(struct ls_link *lk)
{
	return tb_ring_dma_device(lk->pair[0].tx);
}

static void ls_pair_free(struct ls_pair *p)
{
	if (p->rx)
		tb_ring_free(p->rx);
	if (p->tx)
		tb_ring_free(p->tx);
	p->rx = NULL;
	p->tx = NULL;
}

static void ls_pairs_free(struct ls_link *lk, int from)
{
	int i;

	for (i = from; i < LS_PAIRS; i++)
		ls_pair_free(&lk->pair[i]);
}

static struct tb_ring *ls_ring(struct ls_link *lk, int bit)
{
	struct ls_pair *p = &lk->pair[bit / 2];

	return bit % 2 ? p->rx : p->tx;
}

/* In the ring's interrupt, with the ring masked. */
static void ls_ring_doorbell(void *data)
{
	struct ls_doorbell *b = data;

	atomic64_inc(&b->lk->interrupts);
	set_bit(b->bit, &b->lk->masked);
	queue_work(ls_io_wq, &b->lk->io_work);
}

static int ls_pair_alloc(struct ls_link *lk, int i, u32 size)
{
	struct tb_nhi *nhi = lk->xd->tb->nhi;
	unsigned int flags = RING_FLAG_FRAME | RING_FLAG_E2E;
	struct ls_doorbell *doorbell = &lk->doorbell[2 * i];
	struct ls_pair *p = &lk->pair[i];

	p->tx = tb_ring_alloc_tx(nhi, -1, size, flags);
	if (!p->tx)
		return -ENOMEM;
	p->rx = tb_ring_alloc_rx(nhi, -1, size, flags, p->tx->hop, LS_PDFS, LS_PDFS, ls_ring_doorbell, doorbell + 1);
	if (!p->rx) {
		ls_pair_free(p);
		return -ENOMEM;
	}
	/* The core polls TX rings as it does RX rings, though its allocation has no word for it. */
	p->tx->start_poll = ls_ring_doorbell;
	p->tx->poll_data = doorbell;
#ifdef LS_HAVE_THROTTLING
	tb_ring_throttling(p->tx, ls_throttling_ns);
	tb_ring_throttling(p->rx, ls_throttling_ns);
#endif
	return 0;
}

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
	/* Control in this order: ls_poll() and ls_rings_up() know them by their place. */
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

	lk->polled += !!rf;
	return rf ? container_of(rf, struct ls_frame, rf) : NULL;
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
	if (more)
		quiet = ~0UL;
	for (bit = 0; bit < LS_RINGS; bit++) {
		if (!(masked & BIT(bit)))
			continue;
		if (quiet & BIT(bit))
			set_bit(bit, &lk->masked);
		else
			tb_ring_poll_complete(ls_ring(lk, bit));
	}
	/* What was finished between the look and the unmasking may have told nobody. */
	if (masked & ~quiet)
		more |= ls_poll(lk);
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

/* A pair other than the first that cannot be had is left out. */
static int ls_cannot(struct ls_link *lk, int i, u32 why, int error)
{
	if (!i)
		return error;
	lk->bad_pair = lk->pair[i].id;
	lk->bad_why = why;
	lk->bad_error = error;
	return -EAGAIN;
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

int ls_rings_up(struct ls_link *lk)
{
	u32 wanted = READ_ONCE(ls_ring_size), size = wanted;
	int i, ret, none = 0;

	mutex_lock(&lk->io);
	ret = ls_pair_alloc(lk, 0, LS_SHARED_SIZE);
	if (ret)
		goto err;
	for (;; size /= 2) {
		lk->ring_size = size;
		ret = ls_rings_some(lk, &none);
		if (!ret || size <= LS_SIZE_LEAST || lk->pairs == 1)
			break;
		dev_dbg(&lk->dev, "no rings of %u entries, trying %u\n", size, size / 2);
	}
	if (ret && none)
		ret = ls_cannot(lk, none, LS_PAIR_NO_RING, ret);
	if (ret)
		goto err;
	if (size < wanted)
		dev_info(&lk->dev, "no memory for rings of %u entries: they have %u\n", wanted, size);
	ls_ctl_reset(lk);
	ls_data_reset(lk);
	/* Credits for what is posted go out by the TX ring. */
	for (i = 0; i < lk->pairs; i++)
		tb_ring_start(lk->pair[i].tx);
	for (i = 0; i < lk->pairs; i++)
		tb_ring_start(lk->pair[i].rx);
	for (i = LS_CTL_FRAMES; i < 2 * LS_CTL_FRAMES && !ret; i++)
		ret = ls_frame_rx(lk, 0, &lk->frames[i]);
	/* For the frame that shows that the path carries any. */
	for (i = 1; i < lk->pairs && !ret; i++)
		ret = ls_post_spare(lk, i);
	lk->running = !ret;
	lk->sending = false;
	mutex_unlock(&lk->io);

	if (ret)
		ls_rings_down(lk);
	return ret;
err:
	ls_frames_free(lk);
	ls_pairs_free(lk, 0);
	mutex_unlock(&lk->io);
	return ret;
}

/*
 * The core's calls for paths wait for the domain's lock. On kernels before 7.2
 * the removal of a host interface holds it while it waits for ls_remove(). So
 * that ls_login_stop() need not wait for a call that waits for it, nothing of
 * ours is held over one, and what the rings were is looked at anew after it.
 */
void ls_core(struct ls_link *lk, bool in)
{
	mutex_lock(&lk->io);
	lk->in_core = in;
	mutex_unlock(&lk->io);
	wake_up_all(&lk->wait);
}

/*
 * True when the domain's lock could be had a moment ago. A call that begins while
 * it is held by a removal would go on with a domain that is gone, of which the core
 * warns; it still may, where the removal begins between the two.
 */
bool ls_domain_free(struct ls_link *lk)
{
	while (!mutex_trylock(&lk->xd->tb->lock)) {
		if (test_bit(LS_GONE, &lk->flags))
			return false;
		msleep(20);
	}
	mutex_unlock(&lk->xd->tb->lock);
	return !test_bit(LS_GONE, &lk->flags);
}

/* Paths for the rings that ls_rings_up() has made. */
int ls_paths_up(struct ls_link *lk)
{
	int ret = 0, i, n;

	mutex_lock(&lk->io);
	n = lk->pairs;
	mutex_unlock(&lk->io);
	for (i = 0; i < n && !ret; i++) {
		struct ls_pair *p = &lk->pair[i];
		int tx, rx, out = p->out_hop, in = p->in_hop;
		bool gone;

		mutex_lock(&lk->io);
		gone = test_bit(LS_GONE, &lk->flags) || !p->tx;
		tx = gone ? 0 : p->tx->hop;
		rx = gone ? 0 : p->rx->hop;
		mutex_unlock(&lk->io);
		if (gone || !ls_domain_free(lk))
			return -ENODEV;
		ls_core(lk, true);
		ret = tb_xdomain_enable_paths(lk->xd, out, tx, in, rx);
		ls_core(lk, false);
		mutex_lock(&lk->io);
		gone = test_bit(LS_GONE, &lk->flags) || !p->tx;
		if (!ret && !gone)
			lk->paths++;
		mutex_unlock(&lk->io);
		if (gone) {
			/* Who stopped the rings did not know of this path. */
			if (!ret)
				tb_xdomain_disable_paths(lk->xd, out, tx, in, rx);
			return -ENODEV;
		}
		/* Some connection managers have one path for two hosts. */
		/* A router that did not answer in time has not refused. */
		if (ret && ret != -ETIMEDOUT && !lk->xd->is_unplugged)
			ret = ls_cannot(lk, i, LS_PAIR_REFUSED, ret);
	}
	return ret;
}

static void ls_rings_stop(struct ls_link *lk)
{
	int i;

	cancel_delayed_work_sync(&lk->tick);
	/* The core warns of a ring that is stopped masked, and a frame that is finished late would mask it. */
	for (i = 0; i < 2 * lk->pairs; i++) {
		if (ls_ring(lk, i)->irq > 0)
			disable_irq(ls_ring(lk, i)->irq);
	}
	cancel_work_sync(&lk->io_work);
	lk->masked = 0;
	for (i = 2 * lk->pairs - 1; i >= 0; i--) {
		tb_ring_poll_complete(ls_ring(lk, i));
		tb_ring_stop(ls_ring(lk, i));
	}
	for (i = 0; i < 2 * lk->pairs; i++) {
		if (ls_ring(lk, i)->irq > 0)
			enable_irq(ls_ring(lk, i)->irq);
	}
	/* Where all rings share one interrupt it may have come until they were stopped. */
	cancel_work_sync(&lk->io_work);
	lk->masked = 0;
	mutex_lock(&lk->io);
	ls_flow_reset(lk);
	ls_frames_free(lk);
	ls_pairs_free(lk, 0);
	mutex_unlock(&lk->io);
}

void ls_rings_down(struct ls_link *lk)
{
	struct { int out, tx, in, rx; } path[LS_PAIRS];
	int i, n;

	mutex_lock(&lk->io);
	lk->running = false;
	lk->sending = false;
	for (n = 0; n < lk->paths; n++) {
		struct ls_pair *p = &lk->pair[n];

		path[n].out = p->out_hop;
		path[n].tx = p->tx->hop;
		path[n].in = p->in_hop;
		path[n].rx = p->rx->hop;
	}
	lk->paths = 0;
	mutex_unlock(&lk->io);
	if (n)
		ls_core(lk, true);
	for (i = 0; i < n; i++)
		tb_xdomain_disable_paths(lk->xd, path[i].out, path[i].tx, path[i].in, path[i].rx);
	if (n)
		ls_core(lk, false);
	mutex_lock(&lk->teardown);
	if (lk->pair[0].tx)
		ls_rings_stop(lk);
	mutex_unlock(&lk->teardown);
}
