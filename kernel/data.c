// SPDX-License-Identifier: GPL-2.0
/*
 * Long messages: granted, moved, and moved again where frames were damaged or
 * lost.
 *
 * The receiver posts the pages of a granted receive, then says CTS; the sender
 * sends in the order of the grants, which is the order of the pages. When all
 * has arrived the receiver says DONE: only then does the sender let go of its
 * pages.
 *
 * Each frame has two marks, which together count to LS_MARKS. The receiver tells
 * in every control frame how many have arrived, and the sender is never more
 * than LS_WINDOW ahead of that, so of the frames that may come next no two have the
 * same marks: whatever number was lost or doubled, the first frame behind it is
 * seen to be out of place, and none is believed that is. A loss with nothing
 * behind it is seen by the counts (ASK).
 *
 * A damaged frame is in its place: what it should have brought is granted
 * again (PART) when the rest of the message is here. After a lost or doubled
 * one all frames stand in pages that were meant for others. Then the receiver
 * believes none and says VOID. The sender sends no more, and says EMPTY when
 * its ring is. Pages that are still posted are used up by fences, as many as
 * VOID asks for, until none is. Then what is missing is granted again. Where
 * that does not come to an end in LS_VOID_TIME the link is restarted.
 *
 * Locks: all of it under ls_link.io.
 */
#include <linux/jiffies.h>
#include <linux/mm.h>

#include "linkspan.h"
#include "trace.h"

#define LS_VOID_TIME	(10 * HZ)
#define LS_ASK_AFTER	(HZ / 5)
#define LS_ASKS		100
#define LS_TRIES	100	/* of a part that gets no shorter; of data without a frame in its place */
#define LS_QUIET	2	/* ticks without a frame: all that was under way has arrived */
#define LS_FENCE	64	/* bytes */
#define LS_SPARES	8
#define LS_MARKS	(14 * 15)
#define LS_WINDOW	(LS_MARKS - 1)
#define LS_TELL_EVERY	64	/* frames: at the latest then the sender is told */

struct ls_mark {
	u8 sof, eof;
};

static struct ls_mark ls_mark(u64 n)
{
	u32 k = n % LS_MARKS;

	return (struct ls_mark){ .sof = 2 + k / 15, .eof = 1 + k % 15 };
}

void ls_data_reset(struct ls_link *lk)
{
	lk->tx_seq = 0;
	lk->rx_seq = 0;
	lk->tx_told = 0;
	lk->rx_told = 0;
	lk->asks = 0;
	lk->asked = jiffies;
	lk->tx_busy = 0;
	lk->rx_posted = 0;
	lk->again = 0;
	lk->voiding = false;
	lk->void_due = false;
	lk->suspect = false;
	lk->void_idle = 0;
	lk->empty_due = false;
	lk->fences = 0;
	lk->ask_due = false;
}

static void ls_pump_fences(struct ls_link *lk)
{
	while (lk->running && lk->fences && !list_empty(&lk->tx_bounce)) {
		struct ls_frame *f = list_first_entry(&lk->tx_bounce, struct ls_frame, list);

		list_del_init(&f->list);
		memset(page_address(f->page), 0, LS_FENCE);
		f->op = NULL;
		lk->fences--;
		lk->tx_busy++;
		ls_frame_tx(lk, 1, f, LS_FENCE, LS_SOF, 1);
	}
}

/* Frames of transfers that were granted, as long as there are any. */
void ls_pump_data(struct ls_link *lk)
{
	ls_pump_fences(lk);
	while (lk->running && !list_empty(&lk->to_send) && lk->tx_seq - lk->tx_told < LS_WINDOW) {
		struct ls_op *op = list_first_entry(&lk->to_send, struct ls_op, list);
		u64 pos = op->pos + op->moved;
		u32 cut = LS_FRAME_BYTES - ((op->peer_head + op->moved) & LS_FRAME_MASK);
		u32 len = min_t(u64, cut, op->to - op->moved);
		/* A frame never reaches over two pages. */
		bool whole = offset_in_page(pos) + len <= PAGE_SIZE;
		struct list_head *from = whole ? &lk->tx_free : &lk->tx_bounce;
		struct ls_mark mark;
		struct ls_frame *f;

		if (list_empty(from))
			return;
		f = list_first_entry(from, struct ls_frame, list);
		if (whole) {
			f->rf.buffer_phy = ls_region_dma(op->region, pos);
			ls_region_sync(op->region, pos, len, false);
		} else {
			ls_region_copy(op->region, pos, page_address(f->page), len, false);
			lk->copied += len;
		}
		list_del_init(&f->list);
		f->op = op;
		f->len = len;
		op->moved += len;
		op->busy++;
		if (op->moved == op->to)
			list_move_tail(&op->list, &lk->sent);
		mark = ls_mark(lk->tx_seq++);
		lk->asked = jiffies;
		lk->tx_busy++;
		lk->tx_frames++;
		lk->tx_bytes += len;
		ls_frame_tx(lk, 1, f, len, mark.sof, mark.eof);
	}
}

void ls_data_tx(struct ls_link *lk, struct ls_frame *f)
{
	struct ls_op *op = f->op;

	lk->tx_busy--;
	lk->moves++;
	f->op = NULL;
	if (op && !--op->busy && op->received)
		ls_complete(lk, op, 0, op->len);
}

/* A page of ours, for a frame that is no part of a message. */
int ls_post_spare(struct ls_link *lk)
{
	struct ls_frame *f = list_first_entry_or_null(&lk->rx_bounce, struct ls_frame, list);

	if (!f)
		return 0;
	list_del_init(&f->list);
	f->op = NULL;
	lk->rx_posted++;
	return ls_frame_rx(lk, 1, f);
}

/* Pages of granted receives, in the order of the grants, as long as the ring takes them. */
void ls_post_rx(struct ls_link *lk)
{
	int i;

	/* The sender's ring may hold more than the pages that were posted are for. */
	for (i = 0; lk->running && lk->voiding && !lk->void_fences && lk->pairs > 1 && i < LS_SPARES; i++) {
		if ((!i && lk->rx_posted) || lk->void_empty || ls_post_spare(lk))
			break;
	}
	/* On a shared ring, data comes into pages of ours. */
	while (lk->running && lk->pairs > 1 && !lk->voiding && !list_empty(&lk->to_post)) {
		struct ls_op *op = list_first_entry(&lk->to_post, struct ls_op, list);
		u64 pos = op->pos + op->moved;
		u32 len = min_t(u64, LS_FRAME_BYTES - (pos & LS_FRAME_MASK), op->to - op->moved);
		bool whole = len == LS_FRAME_BYTES;
		struct list_head *from = whole ? &lk->rx_free : &lk->rx_bounce;
		struct ls_frame *f;

		if (list_empty(from))
			return;
		f = list_first_entry(from, struct ls_frame, list);
		list_del_init(&f->list);
		f->op = op;
		f->len = len;
		f->pos = pos;
		if (whole) {
			f->rf.buffer_phy = ls_region_dma(op->region, pos);
			ls_region_sync(op->region, pos, len, false);
		}
		op->moved += len;
		if (op->moved == op->to)
			list_move_tail(&op->list, &lk->posted);
		lk->rx_posted++;
		/* Fails only while the ring is being stopped: then all fails. */
		ls_frame_rx(lk, 1, f);
	}
}

static void ls_void_ask(struct ls_link *lk, u32 fences)
{
	lk->void_round++;
	lk->void_fences = fences;
	lk->void_due = true;
	lk->void_empty = false;
	lk->void_quiet = 0;
}

static void ls_void_begin(struct ls_link *lk)
{
	lk->suspect = false;
	lk->voiding = true;
	lk->voids++;
	lk->void_since = jiffies;
	lk->void_count = lk->rx_count;
	lk->void_idle = lk->void_frames == lk->rx_frames ? lk->void_idle + 1 : 0;
	lk->void_frames = lk->rx_frames;
	if (lk->void_idle > LS_TRIES)
		return ls_wrong(lk, "data that is out of order again and again");
	ls_void_ask(lk, 0);
}

/* What is missing of a receive is to be granted again, from here on. */
static void ls_part(struct ls_link *lk, struct ls_op *op, u64 from, u64 to)
{
	op->tries = to - from < op->last ? 0 : op->tries + 1;
	if (op->tries > LS_TRIES)
		return ls_wrong(lk, "a message that is damaged again and again");
	op->last = to - from;
	lk->again += !op->again;
	op->again = true;
	op->moved = from;
	op->done = from;
	op->to = to;
	op->bad_from = 0;
	op->bad_to = 0;
	list_move_tail(&op->list, &lk->parts);
}

static void ls_void_end(struct ls_link *lk)
{
	struct list_head *lists[] = { &lk->posted, &lk->to_post };
	struct ls_op *op, *n;
	int i;

	lk->voiding = false;
	lk->rx_seq = lk->void_seq;
	for (i = 0; i < ARRAY_SIZE(lists); i++) {
		list_for_each_entry_safe(op, n, lists[i], list)
			ls_part(lk, op, op->bad_to ? op->bad_from : op->done, op->to);
	}
	for (i = 0; i < LS_CHANNELS; i++) {
		if (!list_empty(&lk->chans[i].grants))
			ls_ready(lk, &lk->chans[i]);
	}
}

/* A data frame for this place of a receive, of this length. */
static void ls_data(struct ls_link *lk, struct ls_frame *f, struct ls_op *op, u64 pos, u32 len)
{
	struct ls_mark mark = ls_mark(lk->rx_seq);
	u64 at = pos - op->pos;

	if (f->rf.eof != mark.eof || f->rf.sof != mark.sof)
		return ls_void_begin(lk);
	if (f->rf.flags & LS_BAD) {
		lk->damaged++;
		if (!op->bad_to)
			op->bad_from = at;
		op->bad_to = at + len;
	} else if ((f->rf.size ?: LS_FRAME_BYTES) != len) {
		return ls_wrong(lk, "a data frame of wrong length");
	} else if (f->page) {
		ls_region_copy(op->region, pos, page_address(f->page), len, true);
		lk->copied += len;
	} else {
		ls_region_sync(op->region, pos, len, true);
	}
	lk->rx_seq++;
	lk->rx_frames++;
	lk->rx_bytes += len;
	op->done += len;
	if (op->done < op->to)
		return;
	if (op->bad_to)
		ls_part(lk, op, op->bad_from, op->bad_to);
	else
		list_move_tail(&op->list, &lk->finished);
}

void ls_data_rx(struct ls_link *lk, struct ls_frame *f)
{
	struct ls_op *op = f->op;

	f->op = NULL;
	lk->rx_posted--;
	lk->rx_count++;
	lk->moves++;
	if (lk->voiding)
		return;
	if (!op && f->rf.sof == LS_SOF && !(f->rf.flags & LS_BAD) && ls_probed(lk, 1, page_address(f->page)))
		return;
	if (!op || f->rf.sof == LS_SOF)
		ls_void_begin(lk);
	else
		ls_data(lk, f, op, f->pos, f->len);
}

/* On the ring of control frames: it belongs to the oldest grant. */
void ls_data_shared(struct ls_link *lk, struct ls_frame *f)
{
	struct ls_op *op = list_first_entry_or_null(&lk->to_post, struct ls_op, list);
	u64 pos;
	u32 len;

	lk->rx_count++;
	lk->moves++;
	if (lk->voiding)
		return;
	if (!op)
		return ls_void_begin(lk);
	pos = op->pos + op->moved;
	len = min_t(u64, LS_FRAME_BYTES - (pos & LS_FRAME_MASK), op->to - op->moved);
	op->moved += len;
	if (op->moved == op->to)
		list_move_tail(&op->list, &lk->posted);
	ls_data(lk, f, op, pos, len);
}

static bool ls_earlier(const struct ls_op *op, struct list_head *list)
{
	struct ls_op *other;

	list_for_each_entry(other, list, list) {
		if (other->channel == op->channel && (s32)(other->id - op->id) < 0)
			return true;
	}
	return false;
}

/* The next receive that all has arrived of. Those of a channel end in their order. */
static struct ls_op *ls_finished(struct ls_link *lk)
{
	struct ls_op *op;

	list_for_each_entry(op, &lk->finished, list) {
		if (!lk->again || !(ls_earlier(op, &lk->finished) || ls_earlier(op, &lk->parts) ||
				    ls_earlier(op, &lk->to_post) || ls_earlier(op, &lk->posted)))
			return op;
	}
	return NULL;
}

/* What there is to say of data, into a frame; its length, or 0 for nothing. */
u32 ls_say_data(struct ls_link *lk, struct ls_header *h)
{
	struct ls_op *op = ls_finished(lk);

	if (op) {
		h->type = LS_DONE;
		h->id = cpu_to_le32(op->id);
		ls_complete(lk, op, 0, op->len);
	} else if (lk->void_due) {
		lk->void_due = false;
		h->type = LS_VOID;
		h->id = cpu_to_le32(lk->void_round);
		h->length = cpu_to_le32(lk->void_fences);
	} else if (lk->empty_due && !lk->fences && !lk->tx_busy) {
		lk->empty_due = false;
		h->type = LS_EMPTY;
		h->id = cpu_to_le32(lk->empty_round);
		h->from = cpu_to_le64(lk->tx_seq);
	} else if (lk->ask_due) {
		lk->ask_due = false;
		h->type = LS_ASK;
		h->from = cpu_to_le64(lk->tx_seq);
	} else if (!lk->voiding && !list_empty(&lk->parts)) {
		op = list_first_entry(&lk->parts, struct ls_op, list);
		h->type = LS_PART;
		h->id = cpu_to_le32(op->id);
		h->from = cpu_to_le64(op->moved);
		h->length = cpu_to_le32(op->to - op->moved);
		list_move_tail(&op->list, &lk->to_post);
		ls_post_rx(lk);
	} else {
		return 0;
	}
	return sizeof(*h);
}

/* What the peer says has arrived there. */
const char *ls_data_told(struct ls_link *lk, u32 count)
{
	s32 more = count - (u32)lk->tx_told;

	/* That of a frame which was sent a second time may be old. */
	if (more <= 0)
		return NULL;
	if (more > lk->tx_seq - lk->tx_told)
		return "a receipt for a data frame that was not sent";
	lk->tx_told += more;
	lk->asks = 0;
	lk->asked = jiffies;
	lk->moves++;
	return NULL;
}

/* The sender may be waiting to hear what has arrived. */
bool ls_data_due(struct ls_link *lk)
{
	return lk->rx_seq - lk->rx_told >= LS_TELL_EVERY;
}

static struct ls_op *ls_op_of(struct list_head *list, u32 id)
{
	struct ls_op *op;

	list_for_each_entry(op, list, list) {
		if (op->id == id)
			return op;
	}
	return NULL;
}

static const char *ls_got_part(struct ls_link *lk, const struct ls_header *h)
{
	struct ls_op *op = ls_op_of(&lk->sent, le32_to_cpu(h->id));
	u64 from = le64_to_cpu(h->from), length = le32_to_cpu(h->length);

	if (!op || op->received || !length || from > op->len || length > op->len - from)
		return "a grant of a part of nothing";
	op->moved = from;
	op->to = from + length;
	list_move_tail(&op->list, &lk->to_send);
	return NULL;
}

const char *ls_got_data(struct ls_link *lk, const struct ls_header *h)
{
	u32 id = le32_to_cpu(h->id), length = le32_to_cpu(h->length);
	struct ls_op *op;

	switch (h->type) {
	case LS_DONE:
		op = ls_op_of(&lk->sent, id);
		if (!op || op->received || op->moved != op->to)
			return "a receipt for what was not sent";
		op->received = true;
		lk->asks = 0;
		lk->asked = jiffies;
		/* A peer that was too quick with it does not have us give pages back that the ring reads from. */
		if (!op->busy)
			ls_complete(lk, op, 0, op->len);
		return NULL;
	case LS_VOID:
		if (length > (lk->pairs > 1 ? lk->ring_size : 0))
			return "more fences than a ring takes";
		lk->empty_round = id;
		lk->empty_due = true;
		lk->fences = length;
		list_splice_tail_init(&lk->to_send, &lk->sent);
		return NULL;
	case LS_EMPTY:
		if (lk->voiding && !lk->void_due && id == lk->void_round) {
			lk->void_empty = true;
			lk->void_seq = le64_to_cpu(h->from);
		}
		return NULL;
	case LS_ASK:
		lk->count_due = true;
		lk->suspect_seq = le64_to_cpu(h->from);
		if (lk->voiding || lk->rx_seq == lk->suspect_seq)
			return NULL;
		lk->suspect = true;
		lk->void_quiet = 0;
		lk->void_count = lk->rx_count;
		return NULL;
	default:
		return ls_got_part(lk, h);
	}
}

/* All was sent, and the peer tells neither of all frames nor of all messages: does it lack the end of them? */
static void ls_ask_tick(struct ls_link *lk)
{
	if ((lk->tx_told == lk->tx_seq && list_empty(&lk->sent)) || lk->tx_busy ||
	    !time_after(jiffies, lk->asked + LS_ASK_AFTER))
		return;
	lk->asked = jiffies;
	if (++lk->asks > LS_ASKS)
		return ls_wrong(lk, "the peer does not finish a message that was sent");
	lk->ask_due = true;
}

void ls_data_tick(struct ls_link *lk)
{
	int i;

	ls_ask_tick(lk);
	if (!lk->voiding && !lk->suspect)
		return;
	if (lk->voiding && time_after(jiffies, lk->void_since + LS_VOID_TIME))
		return ls_wrong(lk, "data that cannot be put in order again");
	if (lk->void_count != lk->rx_count) {
		lk->void_count = lk->rx_count;
		lk->void_quiet = 0;
		return;
	}
	lk->void_quiet++;
	if (lk->suspect) {
		lk->suspect = lk->rx_seq != lk->suspect_seq;
		if (lk->suspect && lk->void_quiet > LS_QUIET)
			ls_void_begin(lk);
		return;
	}
	if (!lk->void_empty) {
		/* A fence may have come twice. */
		for (i = 0; lk->void_quiet > 2 * LS_QUIET && !lk->rx_posted && lk->pairs > 1 && i < LS_SPARES; i++) {
			if (ls_post_spare(lk))
				break;
		}
		return;
	}
	if (lk->void_quiet < LS_QUIET)
		return;
	if (lk->rx_posted)
		ls_void_ask(lk, lk->rx_posted);
	else
		ls_void_end(lk);
}
