// SPDX-License-Identifier: GPL-2.0
/*
 * Rings: as many pairs as both hosts have, for the client of the link's mode
 * (direct.c or net.c), which makes them and the frames that they carry.
 *
 * Up: rings made, started, receive frames posted, then paths. Down: no more is
 * posted, paths disabled, rings stopped (which hands back every frame), then
 * all that was under way fails and memory is let go.
 *
 * All rings are polled: an interrupt masks its ring and tells the client,
 * which takes what is finished off and unmasks. The core's other
 * way, callbacks from its own work, loses interrupts: the handler's clearing
 * of the status bit is a posted write, so a frame that finishes before the
 * write arrives, and after that work has looked, is cleared with the rest and
 * said by nobody. Masking reads the mask back, and with it the clearing has
 * arrived before the client looks.
 *
 * Locks: ls_link.io, a mutex, guards whether there are rings, and which.
 */
#include <linux/delay.h>
#include <linux/interrupt.h>
#include <linux/module.h>

#include "linkspan.h"

#define LS_PDFS		0xfffe	/* SOF and EOF marks that are taken */

/* nhi_regs.h and nhi.h of drivers/thunderbolt: a bit for each ring, TX before RX */
#define LS_NHI_INT_CLEAR	0x37808
#define LS_NHI_INT_ENABLE	0x38200
#define LS_NHI_AUTO_CLEAR	BIT(0)

struct device *ls_dma_dev(struct ls_link *lk)
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

void ls_pairs_free(struct ls_link *lk, int from)
{
	int i;

	for (i = from; i < LS_PAIRS; i++)
		ls_pair_free(&lk->pair[i]);
}

struct tb_ring *ls_ring(struct ls_link *lk, int bit)
{
	struct ls_pair *p = &lk->pair[bit / 2];

	return bit % 2 ? p->rx : p->tx;
}

/* In the ring's interrupt, with the ring masked. */
static void ls_ring_event(void *data)
{
	struct ls_doorbell *b = data;

	atomic64_inc(&b->lk->interrupts);
	b->lk->client->event(b->lk, b->bit);
}

/*
 * What completes while a ring is masked sets its status, and a host may raise
 * no interrupt while that is set, nor for it when the ring is unmasked. It is
 * cleared by the core's register, for which the core has no call, where the
 * host does not clear it by itself.
 */
static void ls_ring_clear(struct tb_ring *ring)
{
	u32 bit = ring->hop + (ring->is_tx ? 0 : ring->nhi->hop_count);

	if (!(ring->nhi->quirks & LS_NHI_AUTO_CLEAR))
		iowrite32(BIT(bit % 32), ring->nhi->iobase + LS_NHI_INT_CLEAR + bit / 32 * 4);
}

/*
 * Has a ring interrupt again. The read has the unmasking arrive before the
 * caller looks at the ring once more.
 */
void ls_ring_unmask(struct tb_ring *ring)
{
	ls_ring_clear(ring);
	tb_ring_poll_complete(ring);
	ioread32(ring->nhi->iobase + LS_NHI_INT_ENABLE);
}

int ls_pair_alloc(struct ls_link *lk, int i, u32 size)
{
	struct tb_nhi *nhi = lk->xd->tb->nhi;
	unsigned int flags = RING_FLAG_FRAME | RING_FLAG_E2E;
	struct ls_doorbell *doorbell = &lk->doorbell[2 * i];
	struct ls_pair *p = &lk->pair[i];

	p->tx = tb_ring_alloc_tx(nhi, -1, size, flags);
	if (!p->tx)
		return -ENOMEM;
	p->rx = tb_ring_alloc_rx(nhi, -1, size, flags, p->tx->hop, LS_PDFS, LS_PDFS, ls_ring_event, doorbell + 1);
	if (!p->rx) {
		ls_pair_free(p);
		return -ENOMEM;
	}
	/* The core polls TX rings as it does RX rings, though its allocation has no word for it. */
	p->tx->start_poll = ls_ring_event;
	p->tx->poll_data = doorbell;
#ifdef LS_HAVE_THROTTLING
	tb_ring_throttling(p->tx, ls_throttling_ns);
	tb_ring_throttling(p->rx, ls_throttling_ns);
#endif
	return 0;
}

/* A pair other than the first that cannot be had is left out. */
int ls_cannot(struct ls_link *lk, int i, u32 why, int error)
{
	if (!i)
		return error;
	lk->bad_pair = lk->pair[i].id;
	lk->bad_why = why;
	lk->bad_error = error;
	return -EAGAIN;
}

int ls_rings_up(struct ls_link *lk)
{
	int i, ret;

	mutex_lock(&lk->io);
	atomic_set(&lk->heard, 0);
	atomic_set(&lk->peer_heard, 0);
	ret = lk->client->prepare(lk);
	if (ret) {
		lk->client->release(lk);
		ls_pairs_free(lk, 0);
		WRITE_ONCE(lk->client, NULL);
		mutex_unlock(&lk->io);
		wake_up_all(&lk->wait);
		return ret;
	}
	/* Credits for what is posted go out by the TX ring. */
	for (i = 0; i < lk->pairs; i++)
		tb_ring_start(lk->pair[i].tx);
	for (i = 0; i < lk->pairs; i++)
		tb_ring_start(lk->pair[i].rx);
	/* Of whoever had these rings before. */
	for (i = 0; i < 2 * lk->pairs; i++)
		ls_ring_clear(ls_ring(lk, i));
	ret = lk->client->start(lk);
	lk->running = !ret;
	mutex_unlock(&lk->io);

	if (ret)
		ls_rings_down(lk);
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
	const struct ls_client *client = lk->client;
	int i;

	client->quiet(lk);
	/* The core warns of a ring that is stopped masked, and a frame that is finished late would mask it. */
	for (i = 0; i < 2 * lk->pairs; i++) {
		if (ls_ring(lk, i)->irq > 0)
			disable_irq(ls_ring(lk, i)->irq);
	}
	client->idle(lk);
	for (i = 2 * lk->pairs - 1; i >= 0; i--) {
		tb_ring_poll_complete(ls_ring(lk, i));
		tb_ring_stop(ls_ring(lk, i));
		ls_ring_clear(ls_ring(lk, i));
	}
	for (i = 0; i < 2 * lk->pairs; i++) {
		if (ls_ring(lk, i)->irq > 0)
			enable_irq(ls_ring(lk, i)->irq);
	}
	/* Where all rings share one interrupt it may have come until they were stopped. */
	client->idle(lk);
	mutex_lock(&lk->io);
	client->release(lk);
	ls_pairs_free(lk, 0);
	WRITE_ONCE(lk->client, NULL);
	mutex_unlock(&lk->io);
	wake_up_all(&lk->wait);
}

void ls_rings_down(struct ls_link *lk)
{
	struct { int out, tx, in, rx; } path[LS_PAIRS];
	int i, n;

	mutex_lock(&lk->io);
	lk->running = false;
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
