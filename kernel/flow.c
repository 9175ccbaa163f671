// SPDX-License-Identifier: GPL-2.0
/*
 * Channels and messages: what is said on the control ring, and when.
 *
 * A short message (MSG) and the announcement of a long one (RTS) each cost a
 * credit; there are LS_CREDITS to a channel and space for as many messages is
 * held at the receiver, so what arrives always has a place and a reader who
 * does not read stalls its own channel only. A long one moves when it has a
 * receive (data.c). What was granted is always served, from pinned pages, even
 * if the sending process is dead by then; where it is not, the link restarts.
 *
 * Nothing is queued for sending but state: ls_pump() makes the next control
 * frame of the next channel from what that channel has to say, one after the
 * other, as long as there are frames.
 *
 * While the link is up ls_tick() looks at the rings: every 20 ms where something
 * should happen soon or a program has something posted, twice a second at rest,
 * for the peer may have begun something. A lost interrupt costs that long.
 *
 * Locks: all of it under ls_link.io.
 */
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/nospec.h>
#include <linux/slab.h>

#include "linkspan.h"
#include "trace.h"

#define LS_TICK_MS	20
#define LS_TICK_MOST_MS	500
/* What a closed file has begun is not finished any more, where it has not got on for so long. */
#define LS_WATCH	(10 * HZ)

void ls_complete(struct ls_link *lk, struct ls_op *op, int result, u64 len)
{
	struct ls_file *f = op->file;
	struct ls_cqe *cqe = &f->cq[f->cq_tail & (f->cq_entries - 1)];

	trace_linkspan_complete(lk->index, op, len, result);

	cqe->cookie = op->cookie;
	cqe->length = len;
	cqe->result = result;
	cqe->channel = op->channel;
	cqe->opcode = op->opcode;
	cqe->reserved = 0;
	WRITE_ONCE(f->cq_tail, f->cq_tail + 1); /* pairs with ls_unread() */
	/* The entry before the index. */
	smp_store_release(&f->q->cq_tail, f->cq_tail);
	if (op->region)
		ls_region_put(lk, op->region);
	lk->again -= op->again;
	op->again = false;
	list_del(&op->all);
	list_del(&op->list);
	list_add(&op->list, &f->free_ops);
	WRITE_ONCE(f->live, f->live - 1);
	ls_file_wake(f);
	kref_put(&f->kref, ls_file_free);
}

static void ls_fail(struct ls_link *lk, struct list_head *list, int error)
{
	while (!list_empty(list))
		ls_complete(lk, list_first_entry(list, struct ls_op, list), error, 0);
}

void ls_ready(struct ls_link *lk, struct ls_chan *c)
{
	if (list_empty(&c->ready))
		list_add_tail(&c->ready, &lk->ready);
}

static void ls_chan_free(struct ls_chan *c)
{
	c->local = LS_FREE;
	c->owner = NULL;
	c->hup = false;
	c->give = 0;
	c->msg_head = 0;
	c->msg_tail = 0;
	kvfree(c->buf);
	c->buf = NULL;
}

/* By the CPU, at this place of an operation's region. */
static void ls_copy(struct ls_link *lk, struct ls_op *op, void *buf, u32 len, bool in)
{
	ls_region_copy(op->region, op->pos, buf, len, in);
	lk->copied += len;
}

/* Receives meet messages, in order. */
static void ls_match(struct ls_link *lk, struct ls_chan *c)
{
	while (c->msg_head != c->msg_tail && !list_empty(&c->recvs)) {
		struct ls_msg *m = &c->msg[c->msg_head % LS_CREDITS];
		struct ls_op *op = list_first_entry(&c->recvs, struct ls_op, list);

		if (m->len > op->len) {
			/* The message stays for a longer one. */
			ls_complete(lk, op, -EMSGSIZE, m->len);
			continue;
		}
		op->len = m->len;
		op->to = m->len;
		if (m->rts) {
			op->id = m->id;
			op->order = lk->order++;
			list_move_tail(&op->list, &c->grants);
		} else {
			u8 *from = c->buf + (c->msg_head % LS_CREDITS) * LS_FRAME_BYTES;

			if (m->len)
				ls_copy(lk, op, from, m->len, true);
			ls_complete(lk, op, 0, m->len);
		}
		c->msg_head++;
		c->give++;
		ls_ready(lk, c);
	}
	/* No more can come: the peer has closed. */
	if (c->hup && c->msg_head == c->msg_tail)
		ls_fail(lk, &c->recvs, -EPIPE);
}

/* The next thing that a channel has to say, into a frame; its length, or 0 for nothing. */
static u32 ls_say(struct ls_link *lk, struct ls_chan *c, struct ls_header *h)
{
	struct ls_op *op;
	u32 len = sizeof(*h);

	h->channel = cpu_to_le16(c->id);
	if (c->need_ack) {
		c->need_ack = false;
		h->type = LS_CHAN_ACK;
	} else if (c->need_open) {
		c->need_open = false;
		h->type = LS_CHAN_OPEN;
		h->id = cpu_to_le32(LS_CREDITS);
	} else if (!lk->voiding && !list_empty(&c->grants)) {
		op = list_first_entry(&c->grants, struct ls_op, list);
		ls_grant(lk, op);
		h->type = LS_CTS;
		h->id = cpu_to_le32(op->id);
		h->length = cpu_to_le32(op->pos & LS_FRAME_MASK);
	} else if (c->need_close) {
		c->need_close = false;
		h->type = LS_CHAN_CLOSE;
	} else if (c->local != LS_OPEN || c->hup) {
		return 0;
	} else if (c->give >= LS_CREDITS / 2) {
		h->type = LS_CREDIT;
		h->id = cpu_to_le32(c->give);
		c->give = 0;
	} else if (c->remote_open && c->credits && !list_empty(&c->sends)) {
		op = list_first_entry(&c->sends, struct ls_op, list);
		c->credits--;
		h->length = cpu_to_le32(op->len);
		if (op->len <= LS_EAGER_BYTES) {
			h->type = LS_MSG;
			if (op->len)
				ls_copy(lk, op, h + 1, op->len, false);
			len += op->len;
			ls_complete(lk, op, 0, op->len);
		} else {
			op->order = lk->order++;
			op->id = op->order;
			h->type = LS_RTS;
			h->id = cpu_to_le32(op->id);
			list_move_tail(&op->list, &c->rts);
		}
	} else {
		return 0;
	}
	return len;
}

void ls_pump(struct ls_link *lk)
{
	struct ls_frame *f;

	if (!lk->running)
		return;
	ls_ctl_counts(lk);
	if (!lk->sending)
		return;
	while (lk->running && (f = ls_ctl_frame(lk))) {
		struct ls_header *h = page_address(f->page);
		struct ls_chan *c = list_first_entry_or_null(&lk->ready, struct ls_chan, ready);
		u32 len;

		memset(h, 0, sizeof(*h));
		len = ls_say_data(lk, h);
		if (!len && !c)
			break;
		if (!len) {
			len = ls_say(lk, c, h);
			list_del_init(&c->ready);
			if (!len)
				continue;
			ls_ready(lk, c);
		}
		ls_ctl_send(lk, f, len);
	}
	ls_pump_data(lk);
	/* Free frames were not reported so far: from now on they are. */
	if ((!list_empty(&lk->ready) || ls_tx_wanted(lk)) && lk->masked)
		queue_work(ls_io_wq, &lk->io_work);
	ls_tick_soon(lk);
}

/* The peer broke the protocol: nothing of it is believed any more. */
void ls_wrong(struct ls_link *lk, const char *what)
{
	lk->running = false;
	ls_restart(lk, what);
}

static const char *ls_got_msg(struct ls_link *lk, struct ls_chan *c, struct ls_header *h, bool rts, u32 transport)
{
	u32 len = le32_to_cpu(h->length);
	struct ls_msg *m;

	if (c->local == LS_CLOSING)
		return NULL;
	if (c->local != LS_OPEN || c->hup)
		return "a message to a closed channel";
	if (rts ? len <= LS_EAGER_BYTES || len > LS_MESSAGE_BYTES : len != transport)
		return "a message of wrong length";
	if (c->msg_tail - c->msg_head + c->give >= LS_CREDITS)
		return "a message without a credit";
	m = &c->msg[c->msg_tail % LS_CREDITS];
	m->len = len;
	m->rts = rts;
	m->id = le32_to_cpu(h->id);
	if (!rts)
		memcpy(c->buf + (c->msg_tail % LS_CREDITS) * LS_FRAME_BYTES, h + 1, len);
	c->msg_tail++;
	ls_match(lk, c);
	return NULL;
}

static const char *ls_got_cts(struct ls_link *lk, struct ls_chan *c, struct ls_header *h)
{
	u32 head = le32_to_cpu(h->length);
	struct ls_op *op;

	op = list_first_entry_or_null(&c->rts, struct ls_op, list);
	if (!op || op->id != le32_to_cpu(h->id))
		return "a grant that was not asked for";
	if (head >= LS_FRAME_BYTES)
		return "a grant beyond a page";
	op->peer_head = head;
	op->to = op->len;
	op->last = op->len;
	list_move_tail(&op->list, &lk->to_send);
	return NULL;
}

static const char *ls_got_close(struct ls_link *lk, struct ls_chan *c)
{
	u32 i;

	if (!c->remote_open)
		return "a close of a closed channel";
	c->remote_open = false;
	c->credits = 0;
	c->need_ack = true;
	ls_ready(lk, c);
	if (c->local == LS_CLOSING && c->need_close) {
		/* It was faster: there is nothing left to close. */
		c->need_close = false;
		ls_fail(lk, &c->rts, -ECANCELED);
		ls_chan_free(c);
		wake_up_all(&lk->wait);
		return NULL;
	}
	if (c->local != LS_OPEN || c->hup || c->need_open)
		return NULL;
	c->hup = true;
	ls_fail(lk, &c->sends, -EPIPE);
	ls_fail(lk, &c->rts, -EPIPE);
	ls_fail(lk, &c->grants, -EPIPE);
	/*
	 * Announced messages will not be sent any more. Short ones are here; those
	 * that came after such a one would arrive with a hole before them.
	 */
	for (i = c->msg_head; i != c->msg_tail && !c->msg[i % LS_CREDITS].rts;)
		i++;
	c->msg_tail = i;
	ls_match(lk, c);
	return NULL;
}

const char *ls_got(struct ls_link *lk, struct ls_header *h, u32 len)
{
	struct ls_chan *c;
	u32 n;

	if (le16_to_cpu(h->channel) >= LS_CHANNELS)
		return "a channel that there is not";
	c = &lk->chans[array_index_nospec(le16_to_cpu(h->channel), LS_CHANNELS)];
	n = le32_to_cpu(h->id);
	trace_linkspan_control(lk->index, false, h->type, c->id, n, le32_to_cpu(h->length));
	switch (h->type) {
	case LS_MSG:
		return ls_got_msg(lk, c, h, false, len - sizeof(*h));
	case LS_RTS:
		return ls_got_msg(lk, c, h, true, 0);
	case LS_CTS:
		return ls_got_cts(lk, c, h);
	case LS_CREDIT:
		if (c->local == LS_CLOSING)
			return NULL;
		if (!c->remote_open || n > LS_CREDITS || c->credits + n > LS_CREDITS)
			return "too many credits";
		c->credits += n;
		ls_ready(lk, c);
		return NULL;
	case LS_CHAN_OPEN:
		if (c->remote_open || !n || n > LS_CREDITS)
			return "an open of an open channel";
		c->remote_open = true;
		c->credits = n;
		ls_ready(lk, c);
		return NULL;
	case LS_CHAN_CLOSE:
		return ls_got_close(lk, c);
	case LS_CHAN_ACK:
		if (c->local != LS_CLOSING || c->need_close)
			return "an answer to no question";
		ls_fail(lk, &c->rts, -ECANCELED);
		c->remote_open = false;
		c->credits = 0;
		ls_chan_free(c);
		wake_up_all(&lk->wait);
		return NULL;
	case LS_DONE:
	case LS_PART:
	case LS_VOID:
	case LS_EMPTY:
	case LS_ASK:
		return ls_got_data(lk, h);
	default:
		return "a control frame of no known type";
	}
}

/* Whether an entry can be done, and with which region. */
static int ls_check(struct ls_file *f, const struct ls_sqe *sqe, struct ls_region **region)
{
	u32 want = sqe->opcode == LS_OP_SEND ? LS_REGION_READ : LS_REGION_WRITE;
	struct ls_region *r;
	struct ls_chan *c;

	if ((sqe->opcode != LS_OP_SEND && sqe->opcode != LS_OP_RECV) || sqe->reserved0 || sqe->reserved1[0] ||
	    sqe->reserved1[1] || sqe->reserved1[2] || sqe->length > LS_MESSAGE_BYTES)
		return -EINVAL;
	if (sqe->channel >= LS_CHANNELS)
		return -EBADF;
	c = &f->lk->chans[array_index_nospec(sqe->channel, LS_CHANNELS)];
	if (c->local != LS_OPEN || c->owner != f)
		return -EBADF;
	if (c->hup && (sqe->opcode == LS_OP_SEND || c->msg_head == c->msg_tail))
		return -EPIPE;
	r = xa_load(&f->regions, sqe->region);
	if (!r || !(r->flags & want))
		return r ? -EACCES : -ENOENT;
	if (sqe->offset > r->length || sqe->length > r->length - sqe->offset)
		return -ERANGE;
	*region = r;
	return 0;
}

/* One entry of the submission queue; the caller has seen that there is space for its completion. */
void ls_take(struct ls_file *f, const struct ls_sqe *sqe)
{
	struct ls_op *op = list_first_entry(&f->free_ops, struct ls_op, list);
	struct ls_region *r = NULL;
	struct ls_link *lk = f->lk;
	int ret = ls_check(f, sqe, &r);
	struct ls_chan *c;

	op->region = r;
	op->cookie = sqe->cookie;
	op->channel = sqe->channel;
	op->opcode = sqe->opcode;
	WRITE_ONCE(f->live, f->live + 1);
	kref_get(&f->kref);
	list_add_tail(&op->all, &lk->ops);
	if (ret)
		return ls_complete(lk, op, ret, 0);
	r->users++;
	op->pos = r->head + sqe->offset;
	op->len = sqe->length;
	op->moved = 0;
	op->to = 0;
	op->bad_from = 0;
	op->bad_to = 0;
	op->last = 0;
	op->busy = 0;
	op->tries = 0;
	op->end = 0;
	op->since = jiffies;
	op->received = false;
	op->again = false;
	c = &lk->chans[array_index_nospec(op->channel, LS_CHANNELS)];
	trace_linkspan_submit(lk->index, op, op->len, 0);
	if (sqe->opcode == LS_OP_SEND) {
		list_move_tail(&op->list, &c->sends);
		ls_ready(lk, c);
	} else {
		list_move_tail(&op->list, &c->recvs);
		ls_match(lk, c);
	}
}

/* With a place for the messages that may come, which is taken where it succeeds. */
int ls_chan_open(struct ls_file *f, u32 id, u8 *buf)
{
	struct ls_link *lk = f->lk;
	struct ls_chan *c = &lk->chans[array_index_nospec(id, LS_CHANNELS)];

	if (c->local != LS_FREE)
		return -EBUSY;
	c->buf = buf;
	c->local = LS_OPEN;
	c->owner = f;
	c->need_open = true;
	ls_ready(lk, c);
	ls_pump(lk);
	return 0;
}

static void ls_close_one(struct ls_link *lk, struct ls_chan *c)
{
	ls_fail(lk, &c->sends, -ECANCELED);
	ls_fail(lk, &c->recvs, -ECANCELED);
	ls_fail(lk, &c->grants, -ECANCELED);
	if (c->hup || c->need_open) {
		/* The peer has ended it already, or has not heard of it. */
		c->need_open = false;
		ls_chan_free(c);
		return;
	}
	c->local = LS_CLOSING;
	c->owner = NULL;
	c->closing = jiffies;
	c->need_close = true;
	ls_ready(lk, c);
}

int ls_chan_close(struct ls_file *f, u32 id)
{
	struct ls_chan *c = &f->lk->chans[array_index_nospec(id, LS_CHANNELS)];

	if (c->local != LS_OPEN || c->owner != f)
		return -EBADF;
	ls_close_one(f->lk, c);
	ls_pump(f->lk);
	return 0;
}

/* The file is being closed: what is granted goes on without it, watched. */
void ls_chan_close_all(struct ls_file *f)
{
	struct ls_link *lk = f->lk;
	int i;

	for (i = 0; i < LS_CHANNELS; i++) {
		struct ls_chan *c = &lk->chans[i];

		if (c->local == LS_OPEN && c->owner == f)
			ls_close_one(lk, c);
	}
	ls_pump(lk);
}

/*
 * What closed files have begun holds no memory of a process: it may take a
 * while, but not without getting on, whatever else moves on the link. How old
 * it is does not matter: a gibibyte that was granted before it may be on its
 * way.
 */
static void ls_watch_tick(struct ls_link *lk)
{
	bool late = false;
	struct ls_op *op;
	int i;

	/* It looks at every operation of the link, and for each at others. */
	if (time_before(jiffies, lk->watched + HZ / 2))
		return;
	lk->watched = jiffies;
	list_for_each_entry(op, &lk->ops, all) {
		u64 now;

		if (!op->file->closed) {
			op->since = jiffies;
			continue;
		}
		now = ls_data_progress(lk, op);
		if (op->seen != now) {
			op->seen = now;
			op->since = jiffies;
		}
		late |= time_after(jiffies, op->since + LS_WATCH);
	}
	for (i = 0; i < LS_CHANNELS; i++)
		late |= lk->chans[i].local == LS_CLOSING && time_after(jiffies, lk->chans[i].closing + LS_WATCH);
	if (late)
		ls_restart(lk, "the peer does not finish what a closed file has begun");
}

/* Something should happen soon. */
static bool ls_pending(struct ls_link *lk)
{
	return lk->voiding || lk->suspect || lk->gap || lk->ack_due || lk->rx_told != lk->rx_seq ||
	       lk->tx_told != lk->tx_seq || !list_empty(&lk->unacked) ||
	       !list_empty(&lk->sent) || !list_empty(&lk->to_send) || !list_empty(&lk->granted);
}

void ls_tick_soon(struct ls_link *lk)
{
	bool soon = ls_pending(lk) || !list_empty(&lk->ops);

	if (!lk->running || (lk->ticking && (!soon || lk->tick_ms == LS_TICK_MS)) || !(soon || lk->sending))
		return;
	lk->ticking = true;
	lk->tick_ms = LS_TICK_MS;
	mod_delayed_work(ls_io_wq, &lk->tick, msecs_to_jiffies(LS_TICK_MS));
}

static void ls_tick(struct work_struct *work)
{
	struct ls_link *lk = container_of(work, struct ls_link, tick.work);
	unsigned long missed;
	u64 polled;
	bool moved;

	mutex_lock(&lk->io);
	polled = lk->polled;
	lk->came = 0;
	if (ls_poll(lk))
		queue_work(ls_io_wq, &lk->io_work);
	/* Of rings that were not masked: where an interrupt was lost, its status may keep all others away. */
	missed = lk->came & ~READ_ONCE(lk->masked);
	if (missed)
		lk->found += lk->polled - polled;
	ls_unmask_soon(lk, missed);
	if (lk->running)
		ls_ctl_tick(lk);
	if (lk->running && lk->sending) {
		ls_data_tick(lk);
		ls_watch_tick(lk);
	}
	moved = lk->moves != lk->tick_moves;
	lk->tick_moves = lk->moves;
	if (moved || ls_pending(lk))
		lk->tick_ms = LS_TICK_MS;
	else
		lk->tick_ms = min(2 * lk->tick_ms, LS_TICK_MOST_MS);
	lk->ticking = lk->running && (lk->sending || ls_pending(lk));
	if (lk->ticking)
		mod_delayed_work(ls_io_wq, &lk->tick, msecs_to_jiffies(lk->tick_ms));
	ls_pump(lk);
	mutex_unlock(&lk->io);
}

void ls_flow_init(struct ls_link *lk)
{
	struct list_head *lists[] = { &lk->files, &lk->ops, &lk->ready, &lk->to_send, &lk->sent, &lk->granted,
				      &lk->finished, &lk->parts, &lk->reap, &lk->ctl_free, &lk->unacked };
	int i;

	for (i = 0; i < ARRAY_SIZE(lists); i++)
		INIT_LIST_HEAD(lists[i]);
	for (i = 0; i < LS_PAIRS; i++) {
		INIT_LIST_HEAD(&lk->pair[i].tx_free);
		INIT_LIST_HEAD(&lk->pair[i].tx_bounce);
		INIT_LIST_HEAD(&lk->pair[i].rx_free);
		INIT_LIST_HEAD(&lk->pair[i].rx_bounce);
	}
	for (i = 0; i < LS_CHANNELS; i++) {
		struct ls_chan *c = &lk->chans[i];

		c->id = i;
		INIT_LIST_HEAD(&c->ready);
		INIT_LIST_HEAD(&c->sends);
		INIT_LIST_HEAD(&c->rts);
		INIT_LIST_HEAD(&c->recvs);
		INIT_LIST_HEAD(&c->grants);
	}
	for (i = 0; i < LS_RINGS; i++)
		lk->doorbell[i] = (struct ls_doorbell){ .lk = lk, .bit = i };
	INIT_WORK(&lk->io_work, ls_io_work);
	INIT_WORK(&lk->reap_work, ls_reap);
	INIT_DELAYED_WORK(&lk->tick, ls_tick);
}

/* The rings are stopped: nothing touches memory any more. All fails, every file is dead, all memory is let go. */
void ls_flow_reset(struct ls_link *lk)
{
	struct ls_file *f, *n;
	int i;

	while (!list_empty(&lk->ops))
		ls_complete(lk, list_first_entry(&lk->ops, struct ls_op, all), -ENODEV, 0);
	for (i = 0; i < LS_CHANNELS; i++) {
		struct ls_chan *c = &lk->chans[i];

		list_del_init(&c->ready);
		c->remote_open = false;
		c->need_open = false;
		c->need_close = false;
		c->need_ack = false;
		c->credits = 0;
		ls_chan_free(c);
	}
	list_for_each_entry_safe(f, n, &lk->files, list) {
		ls_file_dead(f);
		ls_regions_drop(f, &lk->reap);
		ls_file_wake(f);
	}
	ls_reap_soon(lk);
}
