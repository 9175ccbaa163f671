// SPDX-License-Identifier: GPL-2.0
/*
 * Control frames: none is lost, none comes twice.
 *
 * Each is counted, and kept until the peer has said that it arrived in order,
 * which every frame of the peer's does, or one (COUNT) that says nothing else.
 * What is damaged or out of order is dropped and asked for again; what nobody
 * asks for is sent again when a fifth of a second goes by without an answer. A
 * peer that answers nothing for LS_PATIENCE has the link restarted.
 *
 * PROBE, which is not counted either, goes over each ring pair before the link
 * is up: a path that was enabled is believed only when it has carried a frame.
 * All others travel on the first pair, between frames of data.
 *
 * Locks: all of it under ls_link.io.
 */
#include <linux/jiffies.h>

#include "linkspan.h"
#include "trace.h"

#define LS_SPARE	8	/* frames that are left for COUNT and PROBE */
#define LS_COUNT_EVERY	32	/* frames: at the latest then the peer is told */
#define LS_RESEND	(HZ / 5)
#define LS_PATIENCE	(15 * HZ)
#define LS_EOF_CONTROL	2

void ls_ctl_reset(struct ls_link *lk)
{
	lk->ctl_tx_seq = 0;
	lk->ctl_rx_seq = 0;
	lk->ctl_acked = 0;
	lk->ack_due = 0;
	lk->count_due = false;
	lk->again_due = false;
	lk->gap = false;
	lk->probe_due = false;
	/* It was cancelled with the rings before these. */
	lk->ticking = false;
	lk->watched = jiffies;
}

static void ls_ctl_put(struct ls_link *lk, struct ls_frame *f)
{
	struct ls_header *h = page_address(f->page);

	h->acked = cpu_to_le32(lk->ctl_rx_seq);
	h->data = cpu_to_le32(lk->rx_seq);
	lk->ack_due = 0;
	lk->rx_told = lk->rx_seq;
	f->in_ring = true;
	lk->control++;
	ls_frame_tx(lk, 0, f, f->len, LS_SOF, LS_EOF_CONTROL);
}

void ls_ctl_free(struct ls_link *lk, struct ls_frame *f)
{
	f->in_ring = false;
	f->unacked = false;
	list_add_tail(&f->list, &lk->ctl_free);
	lk->nctl_free++;
}

/* The ring is done with it. */
void ls_ctl_sent(struct ls_link *lk, struct ls_frame *f)
{
	f->in_ring = false;
	if (!f->unacked)
		ls_ctl_free(lk, f);
}

/* A free frame for something that is counted. */
struct ls_frame *ls_ctl_frame(struct ls_link *lk)
{
	if (lk->nctl_free <= LS_SPARE)
		return NULL;
	return list_first_entry(&lk->ctl_free, struct ls_frame, list);
}

void ls_ctl_send(struct ls_link *lk, struct ls_frame *f, u32 len)
{
	struct ls_header *h = page_address(f->page);

	h->seq = cpu_to_le32(lk->ctl_tx_seq);
	if (list_empty(&lk->unacked))
		lk->ctl_since = jiffies;
	lk->nctl_free--;
	list_move_tail(&f->list, &lk->unacked);
	f->seq = lk->ctl_tx_seq++;
	f->len = len;
	f->unacked = true;
	trace_linkspan_control(lk->index, true, h->type, le16_to_cpu(h->channel), le32_to_cpu(h->id),
			       le32_to_cpu(h->length));
	ls_ctl_put(lk, f);
}

/* One that is not counted; false where no frame is free. */
static bool ls_ctl_say(struct ls_link *lk, u8 type, u32 id, u32 length, u64 from)
{
	struct ls_frame *f = list_first_entry_or_null(&lk->ctl_free, struct ls_frame, list);
	struct ls_header *h;

	if (!f)
		return false;
	h = page_address(f->page);
	memset(h, 0, sizeof(*h));
	h->type = type;
	h->id = cpu_to_le32(id);
	h->length = cpu_to_le32(length);
	h->from = cpu_to_le64(from);
	lk->nctl_free--;
	list_del_init(&f->list);
	f->len = sizeof(*h);
	ls_ctl_put(lk, f);
	return true;
}

/* What is to be said about frames, before what they say. */
void ls_ctl_counts(struct ls_link *lk)
{
	if (lk->probe_due && ls_ctl_say(lk, LS_PROBE, lk->own_session, atomic_read(&lk->heard), lk->their_session))
		lk->probe_due = false;
	if ((lk->count_due || lk->again_due || lk->ack_due >= LS_COUNT_EVERY || ls_data_due(lk)) &&
	    ls_ctl_say(lk, LS_COUNT, lk->again_due, 0, 0)) {
		lk->count_due = false;
		lk->again_due = false;
	}
}

static void ls_ctl_resend(struct ls_link *lk)
{
	struct ls_frame *f;

	lk->resent_at = jiffies;
	list_for_each_entry(f, &lk->unacked, list) {
		if (f->in_ring)
			continue;
		lk->resent++;
		ls_ctl_put(lk, f);
	}
}

static const char *ls_ctl_acked(struct ls_link *lk, u32 acked)
{
	struct ls_frame *f, *n;

	/* That of a frame which was sent a second time may be old. */
	if ((s32)(acked - lk->ctl_acked) <= 0)
		return NULL;
	if (acked - lk->ctl_acked > lk->ctl_tx_seq - lk->ctl_acked)
		return "a receipt for a control frame that was not sent";
	list_for_each_entry_safe(f, n, &lk->unacked, list) {
		if ((s32)(f->seq - acked) >= 0)
			break;
		list_del_init(&f->list);
		f->unacked = false;
		if (!f->in_ring)
			ls_ctl_free(lk, f);
	}
	lk->ctl_acked = acked;
	lk->ctl_since = jiffies;
	lk->moves++;
	return NULL;
}

/*
 * One is missing, as the numbers of others show; or, not known, one has arrived
 * damaged: that may have been one which nobody sends again.
 */
static void ls_ctl_again(struct ls_link *lk, bool known)
{
	if (lk->gap && (lk->gap_known || !known))
		return;
	lk->gap = true;
	lk->gap_known = known;
	lk->gap_since = jiffies;
	lk->again_due = true;
}

/* A probe that came over a ring pair: of this session, or it counts for nothing. */
bool ls_probed(struct ls_link *lk, int pair, const struct ls_header *h)
{
	if (h->type != LS_PROBE || le32_to_cpu(h->id) != lk->their_session || le64_to_cpu(h->from) != lk->own_session)
		return false;
	atomic_or(BIT(pair), &lk->heard);
	/* Those over pairs that carry data only tell nothing. */
	atomic_or(le32_to_cpu(h->length) & (BIT(LS_PAIRS) - 1), &lk->peer_heard);
	return true;
}

/* Over the first pair as often as it takes; over each other one once, for there is one frame posted for it. */
void ls_ctl_probe(struct ls_link *lk, bool first)
{
	struct ls_frame *f;
	struct ls_header *h;
	int i;

	ls_ctl_say(lk, LS_PROBE, lk->own_session, atomic_read(&lk->heard) | LS_PROBE_ASKS, lk->their_session);
	for (i = 1; first && i < lk->pairs; i++) {
		f = list_first_entry(&lk->pair[i].tx_bounce, struct ls_frame, list);
		list_del_init(&f->list);
		h = page_address(f->page);
		memset(h, 0, sizeof(*h));
		h->type = LS_PROBE;
		h->id = cpu_to_le32(lk->own_session);
		h->from = cpu_to_le64(lk->their_session);
		f->op = NULL;
		lk->tx_busy++;
		ls_frame_tx(lk, i, f, sizeof(*h), LS_SOF, 1);
	}
}

static const char *ls_got_control(struct ls_link *lk, struct ls_header *h, u32 len)
{
	const char *wrong;
	s32 ahead;

	if (len < sizeof(*h))
		return "a control frame too short";
	wrong = ls_ctl_acked(lk, le32_to_cpu(h->acked));
	if (!wrong)
		wrong = ls_data_told(lk, le32_to_cpu(h->data));
	if (wrong)
		return wrong;
	if (h->type == LS_PROBE) {
		if (ls_probed(lk, 0, h))
			lk->probe_due |= le32_to_cpu(h->length) & LS_PROBE_ASKS;
		return NULL;
	}
	if (h->type == LS_COUNT) {
		if (h->id)
			ls_ctl_resend(lk);
		return NULL;
	}
	ahead = le32_to_cpu(h->seq) - lk->ctl_rx_seq;
	if (ahead >= LS_CTL_FRAMES || ahead < -LS_CTL_FRAMES)
		return "a control frame out of order";
	if (ahead < 0) {
		lk->doubled++;
		lk->count_due = true;
		return NULL;
	}
	if (ahead > 0) {
		lk->gaps += !lk->gap;
		ls_ctl_again(lk, true);
		return NULL;
	}
	lk->ctl_rx_seq++;
	lk->ack_due++;
	lk->gap = false;
	lk->moves++;
	return ls_got(lk, h, len);
}

void ls_control(struct ls_link *lk, struct ls_frame *f)
{
	const char *wrong;

	if (f->rf.flags & LS_BAD) {
		lk->damaged++;
		ls_ctl_again(lk, false);
		return;
	}
	wrong = ls_got_control(lk, page_address(f->page), f->rf.size ?: LS_FRAME_BYTES);
	if (wrong)
		ls_wrong(lk, wrong);
}

void ls_ctl_tick(struct ls_link *lk)
{
	lk->count_due |= lk->ack_due || lk->rx_told != lk->rx_seq;
	if (lk->gap && !lk->gap_known && time_after(jiffies, lk->gap_since + LS_RESEND))
		lk->gap = false;
	if (lk->gap && time_after(jiffies, lk->gap_since + LS_PATIENCE))
		return ls_wrong(lk, "the peer does not send a lost control frame again");
	if (list_empty(&lk->unacked))
		return;
	if (time_after(jiffies, lk->ctl_since + LS_PATIENCE))
		return ls_wrong(lk, "the peer does not answer");
	if (time_after(jiffies, lk->ctl_since + LS_RESEND) && time_after(jiffies, lk->resent_at + LS_RESEND))
		ls_ctl_resend(lk);
}
