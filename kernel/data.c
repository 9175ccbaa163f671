// SPDX-License-Identifier: GPL-2.0
/*
 * Long messages: granted, moved over all ring pairs, and moved again where
 * frames were damaged or lost.
 *
 * The receiver says CTS; the sender sends in the order of the grants, frame n
 * over pair n modulo their number. Both count alike, so a frame's place is
 * known from the pair that it comes over and from how many came there before.
 * To pairs that carry nothing else the receiver posts the pages themselves. On the
 * first pair, where a frame of control may come next as well, data comes into
 * frames of ours and is copied. When all has arrived the receiver says DONE: only
 * then does the sender let go of its pages.
 *
 * Each frame has two marks, which together count the frames of its pair to
 * LS_MARKS. The receiver tells in every control frame how many have arrived, and
 * the sender is never more than LS_WINDOW of each pair ahead of that, so of the
 * frames that may come next over a pair no two have the same marks: whatever
 * number was lost or doubled, the first frame behind it is seen to be out of
 * place, and none is believed that is. A loss with nothing behind it is seen by
 * the counts (ASK).
 *
 * A damaged frame is in its place: what it should have brought is granted
 * again (PART) when the rest of the message is here. After a lost or doubled
 * one all frames of that pair stand in pages that were meant for others. Then
 * the receiver believes none and says VOID. The sender sends no more, and says
 * EMPTY when its rings are. Pages that are still posted are used up by fences,
 * as many for each pair as VOID asks for, until none is. Then what is missing is granted again. Where
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
#define LS_TELL_EVERY	32	/* frames of each pair: at the latest then the sender is told */
#define LS_FENCE_BITS	16

struct ls_mark {
	u8 sof, eof;
};

static struct ls_mark ls_mark(struct ls_link *lk, u64 n)
{
	u32 k = n / lk->pairs % LS_MARKS;

	return (struct ls_mark){ .sof = 2 + k / 15, .eof = 1 + k % 15 };
}

/* Both count on from here. */
static void ls_data_start(struct ls_link *lk, u64 seq)
{
	int i;

	lk->rx_seq = seq;
	lk->rx_end = seq;
	for (i = 0; i < lk->pairs; i++) {
		struct ls_pair *p = &lk->pair[i];

		p->at = NULL;
		p->next = seq + (i + lk->pairs - seq % lk->pairs) % lk->pairs;
		p->post = p->next;
	}
}

void ls_data_reset(struct ls_link *lk)
{
	int i;

	ls_data_start(lk, 0);
	for (i = 0; i < lk->pairs; i++)
		lk->pair[i].posted = 0;
	lk->tx_seq = 0;
	lk->tx_told = 0;
	lk->rx_told = 0;
	lk->asks = 0;
	lk->asked = jiffies;
	lk->tx_busy = 0;
	lk->ending = 0;
	lk->again = 0;
	lk->voiding = false;
	lk->void_due = false;
	lk->suspect = false;
	lk->void_idle = 0;
	lk->empty_due = false;
	memset(lk->fences, 0, sizeof(lk->fences));
	lk->ask_due = false;
}

static bool ls_fences_due(struct ls_link *lk)
{
	u32 sum = 0;
	int i;

	for (i = 0; i < lk->pairs; i++)
		sum += lk->fences[i];
	return sum;
}

static void ls_pump_fences(struct ls_link *lk, int i)
{
	struct ls_pair *p = &lk->pair[i];

	while (lk->running && lk->fences[i] && !list_empty(&p->tx_bounce)) {
		struct ls_frame *f = list_first_entry(&p->tx_bounce, struct ls_frame, list);

		list_del_init(&f->list);
		memset(page_address(f->page), 0, LS_FENCE);
		f->op = NULL;
		lk->fences[i]--;
		lk->tx_busy++;
		ls_frame_tx(lk, i, f, LS_FENCE, LS_SOF, 1);
	}
}

/* Where the next data frame of a transfer comes from. */
static struct list_head *ls_next_free(struct ls_link *lk, struct ls_op *op, u32 *len)
{
	struct ls_pair *p = &lk->pair[lk->tx_seq % lk->pairs];
	u32 cut = LS_FRAME_BYTES - ((op->peer_head + op->moved) & LS_FRAME_MASK);

	*len = min_t(u64, cut, op->to - op->moved);
	/* A frame never reaches over two pages. */
	return offset_in_page(op->pos + op->moved) + *len <= PAGE_SIZE ? &p->tx_free : &p->tx_bounce;
}

/*
 * Data waits for frames that TX rings have, and no news of the peer's is sure to
 * come that would have them looked for.
 */
bool ls_data_waits(struct ls_link *lk)
{
	struct ls_op *op = list_first_entry_or_null(&lk->to_send, struct ls_op, list);
	u32 len;

	if (lk->ending || lk->empty_due || ls_fences_due(lk))
		return true;
	if (!op || lk->tx_seq - lk->tx_told >= (LS_TELL_EVERY + 1) * lk->pairs)
		return false;
	return list_empty(ls_next_free(lk, op, &len));
}

/* Frames of transfers that were granted, as long as there are any. */
void ls_pump_data(struct ls_link *lk)
{
	int i;

	for (i = 1; i < lk->pairs; i++)
		ls_pump_fences(lk, i);
	while (lk->running && !list_empty(&lk->to_send) && lk->tx_seq - lk->tx_told < LS_WINDOW * lk->pairs) {
		struct ls_op *op = list_first_entry(&lk->to_send, struct ls_op, list);
		u64 pos = op->pos + op->moved;
		u32 len;
		struct list_head *from = ls_next_free(lk, op, &len);
		struct ls_mark mark;
		struct ls_frame *f;

		if (list_empty(from))
			return;
		f = list_first_entry(from, struct ls_frame, list);
		if (f->page) {
			ls_region_copy(op->region, pos, page_address(f->page), len, false);
			lk->copied += len;
		} else {
			f->rf.buffer_phy = ls_region_dma(op->region, pos);
			ls_region_sync(op->region, pos, len, false);
		}
		list_del_init(&f->list);
		f->op = op;
		f->len = len;
		op->moved += len;
		op->busy++;
		i = lk->tx_seq % lk->pairs;
		mark = ls_mark(lk, lk->tx_seq++);
		op->end = lk->tx_seq;
		if (op->moved == op->to)
			list_move_tail(&op->list, &lk->sent);
		lk->asked = jiffies;
		lk->tx_busy++;
		lk->tx_frames++;
		lk->tx_bytes += len;
		lk->pair_tx[lk->pair[i].id]++;
		ls_frame_tx(lk, i, f, len, mark.sof, mark.eof);
	}
}

void ls_data_tx(struct ls_link *lk, struct ls_frame *f)
{
	struct ls_op *op = f->op;

	lk->tx_busy--;
	lk->moves++;
	f->op = NULL;
	if (op && !--op->busy && op->received) {
		lk->ending--;
		ls_complete(lk, op, 0, op->len);
	}
}

/* A page of ours, for a frame that is no part of a message. */
int ls_post_spare(struct ls_link *lk, int pair)
{
	struct ls_pair *p = &lk->pair[pair];
	struct ls_frame *f = list_first_entry_or_null(&p->rx_bounce, struct ls_frame, list);

	if (!f)
		return 0;
	list_del_init(&f->list);
	f->op = NULL;
	p->posted++;
	return ls_frame_rx(lk, pair, f);
}

static void ls_post_spares(struct ls_link *lk, int pair)
{
	int i;

	for (i = 0; i < LS_SPARES; i++) {
		if (ls_post_spare(lk, pair))
			return;
	}
}

/* From here on a receive is granted: its frames have the next numbers. */
void ls_grant(struct ls_link *lk, struct ls_op *op)
{
	u64 head = (op->pos + op->moved) & LS_FRAME_MASK;

	op->first = lk->rx_end;
	lk->rx_end += DIV_ROUND_UP(head + op->to - op->moved, LS_FRAME_BYTES);
	op->end = lk->rx_end;
	list_move_tail(&op->list, &lk->granted);
	ls_post_rx(lk);
}

/* The receive that data frame n of a pair is for. */
static struct ls_op *ls_at(struct ls_link *lk, struct ls_pair *p, u64 n)
{
	struct ls_op *op = p->at ?: list_first_entry_or_null(&lk->granted, struct ls_op, list);

	while (op && n >= op->end) {
		if (list_is_last(&op->list, &lk->granted))
			return NULL;
		op = list_next_entry(op, list);
	}
	p->at = op;
	return op;
}

/* From the start of its message, where data frame n of a granted receive goes. */
static u64 ls_offset(const struct ls_op *op, u64 n)
{
	u32 head = (op->pos + op->moved) & LS_FRAME_MASK;

	return n <= op->first ? op->moved : op->moved + (n - op->first) * LS_FRAME_BYTES - head;
}

static u32 ls_length(const struct ls_op *op, u64 at)
{
	return min_t(u64, LS_FRAME_BYTES - ((op->pos + at) & LS_FRAME_MASK), op->to - at);
}

/* Pages of granted receives, in the order of the grants, as long as a ring takes them. */
static void ls_post_pair(struct ls_link *lk, int pair)
{
	struct ls_pair *p = &lk->pair[pair];
	struct ls_op *op;

	while (lk->running && (op = ls_at(lk, p, p->post))) {
		u64 at = ls_offset(op, p->post), pos = op->pos + at;
		u32 len = ls_length(op, at);
		struct list_head *from = len == LS_FRAME_BYTES ? &p->rx_free : &p->rx_bounce;
		struct ls_frame *f;

		if (list_empty(from))
			return;
		f = list_first_entry(from, struct ls_frame, list);
		list_del_init(&f->list);
		f->op = op;
		f->len = len;
		f->pos = pos;
		if (!f->page) {
			f->rf.buffer_phy = ls_region_dma(op->region, pos);
			ls_region_sync(op->region, pos, len, false);
		}
		p->post += lk->pairs;
		p->posted++;
		/* Fails only while the ring is being stopped: then all fails. */
		ls_frame_rx(lk, pair, f);
	}
}

void ls_post_rx(struct ls_link *lk)
{
	int i;

	for (i = 1; lk->running && i < lk->pairs; i++) {
		if (!lk->voiding)
			ls_post_pair(lk, i);
		else if (!lk->void_fences && !lk->void_empty && !lk->pair[i].posted)
			/* The sender's ring may hold more than the pages that were posted are for. */
			ls_post_spares(lk, i);
	}
}

/* Pages for data that are still in RX rings. */
static u64 ls_posted(struct ls_link *lk)
{
	u64 posted = 0;
	int i;

	for (i = 1; i < lk->pairs; i++)
		posted |= (u64)lk->pair[i].posted << i * LS_FENCE_BITS;
	return posted;
}

static void ls_void_ask(struct ls_link *lk, u64 fences)
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
	op->to = to;
	op->bad_from = 0;
	op->bad_to = 0;
	list_move_tail(&op->list, &lk->parts);
}

static void ls_void_end(struct ls_link *lk)
{
	struct ls_op *op, *n;
	int i;

	lk->voiding = false;
	list_for_each_entry_safe(op, n, &lk->granted, list) {
		u64 from = ls_offset(op, lk->rx_seq);

		ls_part(lk, op, op->bad_to ? min(op->bad_from, from) : from, op->to);
	}
	ls_data_start(lk, lk->void_seq);
	for (i = 0; i < LS_CHANNELS; i++) {
		if (!list_empty(&lk->chans[i].grants))
			ls_ready(lk, &lk->chans[i]);
	}
}

/* What has come over a pair may have been the last that others waited for. */
static void ls_advance(struct ls_link *lk)
{
	u64 seq = lk->pair[0].next;
	int i;

	for (i = 1; i < lk->pairs; i++)
		seq = min(seq, lk->pair[i].next);
	lk->rx_seq = seq;
	while (lk->running && !list_empty(&lk->granted)) {
		struct ls_op *op = list_first_entry(&lk->granted, struct ls_op, list);

		if (op->end > seq)
			return;
		for (i = 0; i < lk->pairs; i++) {
			if (lk->pair[i].at == op)
				lk->pair[i].at = NULL;
		}
		if (op->bad_to)
			ls_part(lk, op, op->bad_from, op->bad_to);
		else
			list_move_tail(&op->list, &lk->finished);
	}
}

/* A data frame for this place of a receive, of this length. */
static void ls_data(struct ls_link *lk, struct ls_pair *p, struct ls_frame *f, struct ls_op *op, u64 pos, u32 len)
{
	struct ls_mark mark = ls_mark(lk, p->next);
	u64 at = pos - op->pos;

	if (f->rf.eof != mark.eof || f->rf.sof != mark.sof)
		return ls_void_begin(lk);
	if (f->rf.flags & LS_BAD) {
		lk->damaged++;
		op->bad_from = op->bad_to ? min(op->bad_from, at) : at;
		op->bad_to = max(op->bad_to, at + len);
	} else if ((f->rf.size ?: LS_FRAME_BYTES) != len) {
		return ls_wrong(lk, "a data frame of wrong length");
	} else if (f->page) {
		ls_region_copy(op->region, pos, page_address(f->page), len, true);
		lk->copied += len;
	} else {
		ls_region_sync(op->region, pos, len, true);
	}
	p->next += lk->pairs;
	lk->rx_frames++;
	lk->rx_bytes += len;
	lk->pair_rx[p->id]++;
	ls_advance(lk);
}

void ls_data_rx(struct ls_link *lk, int pair, struct ls_frame *f)
{
	struct ls_pair *p = &lk->pair[pair];
	struct ls_op *op = f->op;

	f->op = NULL;
	p->posted--;
	lk->rx_count++;
	lk->moves++;
	if (lk->voiding)
		return;
	if (!op && f->rf.sof == LS_SOF && !(f->rf.flags & LS_BAD) && ls_probed(lk, pair, page_address(f->page)))
		return;
	if (!op || f->rf.sof == LS_SOF)
		ls_void_begin(lk);
	else
		ls_data(lk, p, f, op, f->pos, f->len);
}

/* Between control frames. */
void ls_data_shared(struct ls_link *lk, struct ls_frame *f)
{
	struct ls_pair *p = &lk->pair[0];
	struct ls_op *op;
	u64 at;

	lk->rx_count++;
	lk->moves++;
	if (lk->voiding)
		return;
	op = ls_at(lk, p, p->next);
	if (!op)
		return ls_void_begin(lk);
	at = ls_offset(op, p->next);
	ls_data(lk, p, f, op, op->pos + at, ls_length(op, at));
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

static bool ls_earlier(const struct ls_op *op, struct list_head *list)
{
	struct ls_op *other;

	list_for_each_entry(other, list, list) {
		if (other->channel == op->channel && other->order < op->order)
			return true;
	}
	return false;
}

/*
 * How far an operation is, in a number that stands still while the peer owes
 * something: to a receive data frames, which come in the order of the grants; to
 * a send the receipts for them, and when all of its own are there nothing but
 * DONE, or PART where VOID has stopped it, unless that has to wait for an earlier
 * message of the channel.
 */
u64 ls_data_progress(struct ls_link *lk, const struct ls_op *op)
{
	if (op->opcode == LS_OP_RECV)
		return lk->rx_seq;
	if (ls_op_of(&lk->to_send, op->id) || ls_earlier(op, &lk->to_send) || ls_earlier(op, &lk->sent))
		return lk->tx_told;
	return min(lk->tx_told, op->end);
}

/* The next receive that all has arrived of. Those of a channel end in their order. */
static struct ls_op *ls_finished(struct ls_link *lk)
{
	struct ls_op *op;

	list_for_each_entry(op, &lk->finished, list) {
		if (!lk->again || !(ls_earlier(op, &lk->finished) || ls_earlier(op, &lk->parts) ||
				    ls_earlier(op, &lk->granted)))
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
		h->from = cpu_to_le64(lk->void_fences);
	} else if (lk->empty_due && !ls_fences_due(lk) && !lk->tx_busy) {
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
		ls_grant(lk, op);
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
	return lk->rx_seq - lk->rx_told >= LS_TELL_EVERY * lk->pairs;
}

static const char *ls_got_part(struct ls_link *lk, const struct ls_header *h)
{
	struct ls_op *op = ls_op_of(&lk->sent, le32_to_cpu(h->id));
	u64 from = le64_to_cpu(h->from), length = le32_to_cpu(h->length);

	/* It lies within the one before, so that a shorter one gets on. */
	if (!op || op->received || !length || from < op->to - op->last || from > op->to || length > op->to - from)
		return "a grant of a part of nothing";
	op->tries = length < op->last ? 0 : op->tries + 1;
	if (op->tries > LS_TRIES)
		return "a message that is damaged again and again";
	op->last = length;
	op->moved = from;
	op->to = from + length;
	list_move_tail(&op->list, &lk->to_send);
	return NULL;
}

/* Of what the sender said that it has sent. More may have come since. */
static bool ls_is_missing(struct ls_link *lk)
{
	return (s64)(lk->suspect_seq - lk->rx_seq) > 0;
}

static const char *ls_got_void(struct ls_link *lk, const struct ls_header *h)
{
	u64 fences = le64_to_cpu(h->from);
	int i;

	/* No pages are posted for data on the first pair, nor on those that are not in use. */
	if (fences & (BIT_ULL(LS_FENCE_BITS) - 1) ||
	    (lk->pairs < LS_PAIRS && fences >> lk->pairs * LS_FENCE_BITS))
		return "more fences than a ring takes";
	lk->empty_round = le32_to_cpu(h->id);
	lk->empty_due = true;
	for (i = 0; i < lk->pairs; i++)
		lk->fences[i] = fences >> i * LS_FENCE_BITS & (BIT_ULL(LS_FENCE_BITS) - 1);
	list_splice_tail_init(&lk->to_send, &lk->sent);
	return NULL;
}

const char *ls_got_data(struct ls_link *lk, const struct ls_header *h)
{
	u32 id = le32_to_cpu(h->id);
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
		lk->ending += !!op->busy;
		if (!op->busy)
			ls_complete(lk, op, 0, op->len);
		return NULL;
	case LS_VOID:
		return ls_got_void(lk, h);
	case LS_EMPTY:
		if (!lk->voiding || lk->void_due || id != lk->void_round)
			return NULL;
		lk->void_empty = true;
		lk->void_seq = le64_to_cpu(h->from);
		if (lk->void_seq - lk->rx_seq > LS_WINDOW * lk->pairs)
			return "more data frames than may be under way";
		return NULL;
	case LS_ASK:
		lk->count_due = true;
		lk->suspect_seq = le64_to_cpu(h->from);
		if (lk->voiding || !ls_is_missing(lk))
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
		lk->suspect = ls_is_missing(lk);
		if (lk->suspect && lk->void_quiet > LS_QUIET)
			ls_void_begin(lk);
		return;
	}
	if (!lk->void_empty) {
		/* A fence may have come twice. */
		for (i = 1; lk->void_quiet > 2 * LS_QUIET && i < lk->pairs; i++) {
			if (!lk->pair[i].posted)
				ls_post_spares(lk, i);
		}
		return;
	}
	if (lk->void_quiet < LS_QUIET)
		return;
	if (ls_posted(lk))
		ls_void_ask(lk, ls_posted(lk));
	else
		ls_void_end(lk);
}
