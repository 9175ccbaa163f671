// SPDX-License-Identifier: GPL-2.0
/*
 * Login: how two hosts agree on a version, on HopIDs, and on when to send.
 *
 * Each side asks LOGIN with its mode and the HopIDs that it has taken to receive on,
 * one for each ring pair. The other takes the same ones to send on, or names those that it
 * cannot; a pair is in use where both have one for it. When
 * each has accepted the other, both set up rings and paths and ask READY: an
 * OK says that what is sent from now on has somewhere to arrive. A session is
 * a random number; one that has changed is a peer that began anew.
 *
 * Locks: ls_link.login guards what the protocol knows. It is held neither
 * over a request nor over work on paths, because the peer's requests, handled
 * by ls_handle(), arrive by the same thread as answers to ours. Work on paths
 * waits for the domain's lock, under which a hotplug event or the removal of the
 * host interface may be waiting for ls_login_stop(). So that does not wait for
 * it for longer than LS_CORE_PATIENCE, the work holds references on all that it
 * uses, and it touches rings only as long as they are there. Order: login, then
 * io (of ring.c and the clients). The network's own lock (rtnl) is taken under neither,
 * nor by work on paths: who holds it may be waiting for the core.
 */
#include <linux/random.h>

#include "linkspan.h"
#include "trace.h"

#define LS_PROTOCOL	3
#define LS_TIMEOUT_MS	500
/* thunderbolt_net and its like insist on low HopIDs: they are left to them. */
#define LS_FIRST_HOP	16
#define LS_READY_TRIES	200
#define LS_CORE_PATIENCE (HZ / 2)
/* How long a frame may take over a ring pair that works. */
#define LS_PROBE_TIME	(5 * HZ)
#define LS_SILENT	3	/* logins after which a pair that moves nothing is left out */
#define LS_OUT_S	60
#define LS_OUT_MOST_S	3600
/* LOGINs without an answer, one every 1.5 s, until the peer's core is asked for its UUID. */
#define LS_DEAF		4

static const uuid_t ls_uuid = UUID_INIT(0x6c73706e, 0x9c1e, 0x4f0a, 0xa4, 0x31, 0x5e, 0x2b, 0x77, 0x10, 0xc3, 0x8d);

enum { LS_LOGIN_REQ = 1, LS_READY_REQ = 2, LS_LOGOUT_REQ = 3, LS_RESPONSE = 4 };
enum { LS_OK, LS_WAIT, LS_RETRY, LS_HOPS, LS_VERSION, LS_OTHER_MODE };

/* One XDomain packet, requests and answers alike; 32-bit words on the wire. */
struct ls_packet {
	u32 route_hi, route_lo;
	u32 length;
	uuid_t protocol;
	uuid_t from, to;
	u32 type;
	u32 request;
	u32 version;
	u32 session;		/* the sender's */
	u32 peer_session;	/* the receiver's, as far as known */
	u32 status;		/* of an answer; LOGIN: the mode */
	u32 hops[LS_PAIRS];	/* LOGIN: to receive on, 0: none; LS_HOPS: 1 for each that is taken */
	u32 nonce[4];		/* LOGIN: random */
	u32 proof[4];		/* the answer: what the key makes of it; LOGIN: the sender's route, two words */
};

/*
 * A core that reads our properties in pieces while they change takes what it
 * got for broken, gives this host up, and with it our service there, and
 * listens to no further notice of a change (Linux 7.3: tb_xdomain_failed).
 * What has it begin anew is the other host's question for its UUID.
 */
struct ls_uuid_question {
	u32 route_hi, route_lo;
	u32 length;
	uuid_t protocol;
	u32 type;
};

static const uuid_t ls_discovery =
	UUID_INIT(0xb638d70e, 0x42ff, 0x40bb, 0x97, 0xc2, 0x90, 0xe2, 0xc0, 0xb2, 0xff, 0x07);
#define LS_UUID_REQUEST	12

/* What is proven: that this answer is to that LOGIN, by a host that has the key. */
struct ls_proven {
	u32 nonce[4];
	u32 version, session, peer_session, status;
	uuid_t from, to;
};

atomic_t ls_in_handler = ATOMIC_INIT(0);

static void ls_fill(struct ls_link *lk, struct ls_packet *p, u32 type)
{
	memset(p, 0, sizeof(*p));
	p->route_hi = upper_32_bits(lk->xd->route);
	p->route_lo = lower_32_bits(lk->xd->route);
	p->length = (sizeof(*p) - 12) / 4;
	p->protocol = ls_uuid;
	p->from = *lk->xd->local_uuid;
	p->to = *lk->xd->remote_uuid;
	p->type = type;
	p->version = LS_PROTOCOL;
	p->session = lk->session;
	p->peer_session = lk->peer_session;
}

/* Without login held. */
static int ls_ask(struct ls_link *lk, struct ls_packet *p, unsigned int ms)
{
	struct ls_packet answer = {};
	int ret;

	ret = tb_xdomain_request(lk->xd, p, sizeof(*p), TB_CFG_PKG_XDOMAIN_REQ, &answer, sizeof(answer),
				 TB_CFG_PKG_XDOMAIN_RESP, ms);
	if (ret)
		return ret;
	/* A late answer to an earlier request looks the same to the core. */
	if (answer.type != LS_RESPONSE || answer.request != p->request)
		return -EAGAIN;
	*p = answer;
	return 0;
}

static void ls_ask_uuid(struct ls_link *lk)
{
	struct ls_uuid_question q = {
		.route_hi = upper_32_bits(lk->xd->route),
		.route_lo = lower_32_bits(lk->xd->route),
		.length = (sizeof(q) - 12) / 4,
		.protocol = ls_discovery,
		.type = LS_UUID_REQUEST,
	};
	struct ls_uuid_question answer;

	dev_dbg(&lk->dev, "no answer: asking the peer's core for its UUID\n");
	tb_xdomain_request(lk->xd, &q, sizeof(q), TB_CFG_PKG_XDOMAIN_REQ, &answer, sizeof(answer),
			   TB_CFG_PKG_XDOMAIN_RESP, LS_TIMEOUT_MS);
}

/* Whether there is a key, and the proof that belongs to an answer. */
static bool ls_proof(const struct ls_packet *answer, const u32 nonce[4], u64 proof[2])
{
	struct ls_proven w = {
		.version = answer->version,
		.session = answer->session,
		.peer_session = answer->peer_session,
		.status = answer->status,
		.from = answer->from,
		.to = answer->to,
	};

	memcpy(w.nonce, nonce, sizeof(w.nonce));
	return ls_prove(&w, sizeof(w), proof);
}

/*
 * Looks at all of it, whatever is wrong. A proof says whose it is: one that we
 * gave ourselves, for our own nonce in a LOGIN of the peer's, does not come
 * back to us as the peer's, not even from one that took our UUID.
 */
static bool ls_proves(struct ls_link *lk, const struct ls_packet *answer, const u32 nonce[4])
{
	const uuid_t *peer = lk->xd->remote_uuid, *we = lk->xd->local_uuid;
	u64 proof[2], theirs[2];

	if (!ls_proof(answer, nonce, proof))
		return true;
	memcpy(theirs, answer->proof, sizeof(theirs));
	return uuid_equal(&answer->from, peer) && uuid_equal(&answer->to, we) && !uuid_equal(peer, we) &&
	       !((proof[0] ^ theirs[0]) | (proof[1] ^ theirs[1]));
}

static u32 ls_new_session(struct ls_link *lk)
{
	u32 session;

	do {
		session = get_random_u32();
	} while (!session || session == lk->session);
	return session;
}

static void ls_release_hops(struct ls_link *lk, bool in, bool out)
{
	int i;

	for (i = 0; i < LS_PAIRS; i++) {
		struct ls_offer *o = &lk->offer[i];

		if (in && o->in_hop)
			tb_xdomain_release_in_hopid(lk->xd, o->in_hop);
		if (out && o->out_hop)
			tb_xdomain_release_out_hopid(lk->xd, o->out_hop);
		o->in_hop = in ? 0 : o->in_hop;
		o->out_hop = out ? 0 : o->out_hop;
	}
	lk->hops_in &= !in;
	lk->hops_out &= !out;
}

static int ls_take_in_hop(struct ls_link *lk, int first)
{
	int hop = tb_xdomain_alloc_in_hopid(lk->xd, first);

	return hop < 0 ? tb_xdomain_alloc_in_hopid(lk->xd, -1) : hop;
}

static bool ls_again_is_due(struct ls_link *lk)
{
	return lk->out_s && time_after(jiffies, lk->out_since + lk->out_s * HZ);
}

static void ls_try_all(struct ls_link *lk)
{
	int i;

	for (i = 0; i < LS_PAIRS; i++)
		lk->offer[i].out = false;
}

/* One for each ring pair that is not left out. A pair keeps its own as long as nobody else has it. */
static int ls_take_in_hops(struct ls_link *lk)
{
	/* The first ring is that of the core. */
	u32 rings = lk->xd->tb->nhi->hop_count - 1, most = max(READ_ONCE(ls_ring_pairs), 1U);
	int i;

	if (lk->hops_in)
		return 0;
	if (ls_again_is_due(lk))
		ls_try_all(lk);
	for (i = 0; i < LS_PAIRS; i++) {
		struct ls_offer *o = &lk->offer[i];
		int hop;

		if (i >= most)
			o->why = LS_PAIR_LIMIT;
		else if (i >= rings)
			o->why = LS_PAIR_NO_RING;
		else if (!o->out)
			o->why = LS_PAIR_DOWN;
		if (o->why)
			continue;
		hop = ls_take_in_hop(lk, LS_FIRST_HOP + i);
		if (hop < 0) {
			o->why = LS_PAIR_NO_HOPID;
			continue;
		}
		o->in_hop = hop;
		lk->hops_in = true;
	}
	return lk->hops_in ? 0 : -ENOSPC;
}

/* The peer cannot send on these: others are taken before they are let go. */
static void ls_change_in_hops(struct ls_link *lk, const u32 *taken)
{
	int i;

	for (i = 0; i < LS_PAIRS; i++) {
		int old = lk->offer[i].in_hop;
		int hop;

		if (!taken[i] || !old)
			continue;
		hop = tb_xdomain_alloc_in_hopid(lk->xd, old + 1);
		if (hop < 0)
			hop = ls_take_in_hop(lk, LS_FIRST_HOP);
		if (hop < 0)
			continue;
		tb_xdomain_release_in_hopid(lk->xd, old);
		lk->offer[i].in_hop = hop;
	}
}

/* Takes exactly these to send on, for pairs that we have too, or none and says which are taken. */
static bool ls_take_out_hops(struct ls_link *lk, const u32 *hops, u32 *taken)
{
	bool all = true;
	int i, got;

	for (i = 0; i < LS_PAIRS; i++) {
		struct ls_offer *o = &lk->offer[i];

		if (!hops[i] || !o->in_hop)
			continue;
		got = -1;
		if (hops[i] >= 8 && hops[i] <= lk->xd->remote_max_hopid)
			got = tb_xdomain_alloc_out_hopid(lk->xd, hops[i]);
		o->out_hop = max(got, 0);
		taken[i] = got != hops[i];
		all &= !taken[i];
	}
	if (!all)
		ls_release_hops(lk, false, true);
	lk->hops_out = all;
	return all;
}

/* From now on the link does without these pairs, until they are tried again. login is held. */
static void ls_do_without(struct ls_link *lk, u32 pairs, u32 why, int error)
{
	static const char * const reasons[] = {
		[LS_PAIR_NO_RING] = "the host interface has no ring left",
		[LS_PAIR_REFUSED] = "its path was refused",
		[LS_PAIR_SILENT] = "it carries nothing",
	};
	int i;

	lk->out_since = jiffies;
	lk->out_s = lk->out_s ? min(2 * lk->out_s, LS_OUT_MOST_S) : LS_OUT_S;
	for (i = 0; i < LS_PAIRS; i++) {
		struct ls_offer *o = &lk->offer[i];

		if (!(pairs & BIT(i)))
			continue;
		o->out = true;
		o->why = why;
		o->error = error;
		o->silent = 0;
		/* Those behind it that were not tried are said by LS_IOC_PAIRS. */
		if (i == __ffs(pairs))
			dev_info(&lk->dev, "ring pair %d is left out: %s; tried again after %u s, once nothing uses the link\n",
				 i, reasons[why], lk->out_s);
	}
}

/* login is held. */
static void ls_tell_mode(struct ls_link *lk)
{
	if (!lk->told)
		dev_warn(&lk->dev, "login: this host is in the mode %s, the peer is in the other one; lspan link mode sets it\n",
			 ls_clients[lk->mode]->name);
	lk->told = true;
	lk->modes_differ = true;
}

static bool ls_is_allowed(struct ls_link *lk)
{
	return !lk->denied && (lk->forced || ls_allowed(lk->xd->remote_uuid));
}

static void ls_set_state(struct ls_link *lk, u32 state)
{
	if (lk->state == state)
		return;
	dev_dbg(&lk->dev, "state %u, was %u\n", state, lk->state);
	trace_linkspan_state(lk->index, state, lk->epoch);
	WRITE_ONCE(lk->state, state);
	wake_up_all(&lk->wait);
}

/* The work outlives the service where that goes while the core has it wait. */
static void ls_queue_path(struct ls_link *lk)
{
	if (test_bit(LS_GONE, &lk->flags))
		return;
	get_device(&lk->dev);
	if (!queue_work(ls_wq, &lk->path_work))
		put_device(&lk->dev);
}

static void ls_again(struct ls_link *lk, unsigned int ms)
{
	if (!test_bit(LS_GONE, &lk->flags))
		mod_delayed_work(ls_wq, &lk->login_work, msecs_to_jiffies(ms));
}

void ls_kick(struct ls_link *lk)
{
	ls_again(lk, 0);
}

/* From anywhere: the rings are stopped and the login begins anew. */
void ls_restart(struct ls_link *lk, const char *why)
{
	if (test_and_set_bit(LS_WANT_DOWN, &lk->flags))
		return;
	dev_warn_ratelimited(&lk->dev, "link restarted: %s\n", why);
	lk->restarts++;
	ls_queue_path(lk);
}

static void ls_down_for_peer(struct ls_link *lk)
{
	set_bit(LS_WANT_DOWN, &lk->flags);
	ls_queue_path(lk);
}

/* All that the login came to. login is held. */
static void ls_forget(struct ls_link *lk, bool logout, u32 state)
{
	ls_release_hops(lk, true, true);
	lk->peer_session = 0;
	lk->accepted_by = 0;
	lk->modes_differ = false;
	lk->logout = logout;
	ls_set_state(lk, state);
}

/* Both have accepted each other? Then rings are due. login is held. */
static void ls_maybe_up(struct ls_link *lk)
{
	if (lk->state != LS_STATE_LOGIN || !lk->peer_session || lk->accepted_by != lk->peer_session)
		return;
	ls_set_state(lk, LS_STATE_STARTING);
	set_bit(LS_WANT_UP, &lk->flags);
	ls_queue_path(lk);
}

static u32 ls_answer_login(struct ls_link *lk, const struct ls_packet *p, u32 *taken)
{
	bool common = false;
	int i, j;

	if (p->version != LS_PROTOCOL) {
		if (!lk->told)
			dev_warn(&lk->dev, "login: the peer speaks version %u, we %u\n", p->version, LS_PROTOCOL);
		lk->told = true;
		return LS_VERSION;
	}
	if (!p->session)
		return LS_RETRY;
	if (!ls_is_allowed(lk)) {
		if (!lk->told)
			dev_info(&lk->dev, "host %pUb waits to be allowed\n", lk->xd->remote_uuid);
		lk->told = true;
		return LS_WAIT;
	}
	if (lk->state == LS_STATE_WAITING)
		ls_set_state(lk, LS_STATE_LOGIN);
	if (lk->state != LS_STATE_LOGIN) {
		if (p->session == lk->peer_session)
			return LS_OK;
		dev_dbg(&lk->dev, "the peer logs in anew\n");
		ls_down_for_peer(lk);
		return LS_RETRY;
	}
	if (p->status != lk->mode) {
		lk->peer_session = 0;
		ls_release_hops(lk, false, true);
		ls_tell_mode(lk);
		return LS_OTHER_MODE;
	}
	lk->modes_differ = false;
	if (ls_take_in_hops(lk))
		return LS_RETRY;
	if (p->session == lk->peer_session && !memcmp(p->hops, lk->peer_hops, sizeof(lk->peer_hops)))
		return LS_OK;
	ls_release_hops(lk, false, true);
	lk->peer_session = 0;
	memcpy(lk->peer_hops, p->hops, sizeof(lk->peer_hops));
	for (i = 0; i < LS_PAIRS; i++) {
		for (j = 0; j < i; j++) {
			if (p->hops[i] && p->hops[i] == p->hops[j])
				return LS_HOPS;
		}
		common |= p->hops[i] && lk->offer[i].in_hop;
	}
	if (!common) {
		/* Each has left out what the other has not. */
		ls_try_all(lk);
		ls_release_hops(lk, true, false);
		return LS_RETRY;
	}
	if (!ls_take_out_hops(lk, p->hops, taken))
		return LS_HOPS;
	lk->peer_session = p->session;
	lk->peer_route = (u64)p->proof[0] << 32 | p->proof[1];
	ls_maybe_up(lk);
	ls_kick(lk);
	return LS_OK;
}

static u32 ls_answer_ready(struct ls_link *lk, const struct ls_packet *p)
{
	if (lk->state < LS_STATE_READY || lk->state > LS_STATE_UP)
		return LS_RETRY;
	if (p->session != lk->peer_session || p->peer_session != lk->session)
		return LS_RETRY;
	return LS_OK;
}

static void ls_handle_packet(struct ls_link *lk, const struct ls_packet *p)
{
	struct ls_packet answer;
	u32 taken[LS_PAIRS] = {};
	u64 proof[2];
	u32 status;

	mutex_lock(&lk->login);
	if (test_bit(LS_GONE, &lk->flags)) {
		mutex_unlock(&lk->login);
		return;
	}
	switch (p->type) {
	case LS_LOGIN_REQ:
		status = ls_answer_login(lk, p, taken);
		break;
	case LS_READY_REQ:
		status = ls_answer_ready(lk, p);
		break;
	case LS_LOGOUT_REQ:
		if (p->session == lk->peer_session && p->session) {
			dev_dbg(&lk->dev, "the peer logs out\n");
			if (lk->state > LS_STATE_LOGIN)
				ls_down_for_peer(lk);
			else
				lk->peer_session = 0;
		}
		status = LS_OK;
		break;
	default:
		mutex_unlock(&lk->login);
		return;
	}
	ls_fill(lk, &answer, LS_RESPONSE);
	answer.request = p->request;
	answer.status = status;
	memcpy(answer.hops, taken, sizeof(answer.hops));
	if (p->type == LS_LOGIN_REQ && ls_proof(&answer, p->nonce, proof))
		memcpy(answer.proof, proof, sizeof(answer.proof));
	mutex_unlock(&lk->login);
	tb_xdomain_response(lk->xd, &answer, sizeof(answer), TB_CFG_PKG_XDOMAIN_RESP);
}

/* In the thread that receives control packets: it must not wait for any. */
static int ls_handle(const void *buf, size_t size, void *data)
{
	const struct ls_packet *p = buf;
	struct ls_link *lk;
	u64 route;

	if (size < sizeof(*p) || p->type == LS_RESPONSE)
		return 0;
	atomic_inc(&ls_in_handler);
	route = ((u64)p->route_hi << 32 | p->route_lo) & ~BIT_ULL(63);
	lk = ls_find(route, &p->from, &p->to);
	if (lk) {
		ls_handle_packet(lk, p);
		put_device(&lk->dev);
	}
	atomic_dec(&ls_in_handler);
	return !!lk;
}

struct tb_protocol_handler ls_handler = {
	.uuid = &ls_uuid,
	.callback = ls_handle,
};

/* One LOGIN; how long to wait before the next. login is held, and let go. */
static unsigned int ls_ask_login(struct ls_link *lk)
{
	struct ls_packet p;
	u32 nonce[4];
	u32 session;
	int ret, i;

	ret = ls_take_in_hops(lk);
	if (ret) {
		dev_dbg(&lk->dev, "no HopID left to receive on: %d\n", ret);
		return 1000;
	}
	ls_fill(lk, &p, LS_LOGIN_REQ);
	p.request = ++lk->request;
	p.status = lk->mode;
	for (i = 0; i < LS_PAIRS; i++)
		p.hops[i] = lk->offer[i].in_hop;
	get_random_bytes(nonce, sizeof(nonce));
	memcpy(p.nonce, nonce, sizeof(nonce));
	p.proof[0] = upper_32_bits(lk->xd->route);
	p.proof[1] = lower_32_bits(lk->xd->route);
	session = lk->session;
	mutex_unlock(&lk->login);
	ret = ls_ask(lk, &p, LS_TIMEOUT_MS);
	lk->unanswered = ret ? lk->unanswered + 1 : 0;
	if (lk->unanswered == LS_DEAF) {
		lk->unanswered = 0;
		ls_ask_uuid(lk);
	}
	mutex_lock(&lk->login);
	if (ret)
		return 1000;
	if (lk->state != LS_STATE_LOGIN || lk->session != session)
		return 0;
	switch (p.status) {
	case LS_OK:
		if (!ls_proves(lk, &p, nonce)) {
			if (!lk->told)
				dev_warn(&lk->dev, "login: the peer does not have our key\n");
			lk->told = true;
			return 2000;
		}
		lk->accepted_by = p.session;
		ls_maybe_up(lk);
		return 1000;
	case LS_HOPS:
		ls_change_in_hops(lk, p.hops);
		return 20;
	case LS_RETRY:
		return 200;
	case LS_VERSION:
		if (!lk->told)
			dev_warn(&lk->dev, "login: the peer speaks version %u, we %u\n", p.version, LS_PROTOCOL);
		lk->told = true;
		return 10000;
	case LS_OTHER_MODE:
		ls_tell_mode(lk);
		return 2000;
	default:
		return 2000;
	}
}

static void ls_all_carry(struct ls_link *lk)
{
	bool out = false;
	int i;

	for (i = 0; i < LS_PAIRS; i++) {
		struct ls_offer *o = &lk->offer[i];

		out |= o->out;
		o->silent = 0;
		/* What the peer leaves out is for it to try again. */
		if (o->in_hop && !o->out_hop)
			o->why = LS_PAIR_PEER;
	}
	if (!out)
		lk->out_s = 0;
}

/*
 * After a time in which not all pairs have carried a frame both ways. What the peer
 * has heard is known only where control arrives.
 */
static void ls_not_all_carry(struct ls_link *lk, u32 all, u32 heard, u32 peer_heard)
{
	u32 silent = all & ~(peer_heard ? heard & peer_heard : heard), out = 0;
	int i, k = 0;

	for (i = 0; i < LS_PAIRS; i++) {
		struct ls_offer *o = &lk->offer[i];

		if (!o->in_hop || !o->out_hop)
			continue;
		/* Where none carries anything, none of them is at fault. */
		if (silent & BIT(k) && silent != all && ++o->silent >= LS_SILENT)
			out |= BIT(i);
		k++;
	}
	if (out)
		ls_do_without(lk, out, LS_PAIR_SILENT, 0);
	ls_restart(lk, silent == all ? "no ring pair carries anything" : "a ring pair carries nothing");
}

/* Whether every pair has carried a frame, both ways; how long to wait before the next look. login is held. */
static unsigned int ls_verify(struct ls_link *lk)
{
	bool first = !lk->probing, late = !first && time_after(jiffies, lk->probed_since + LS_PROBE_TIME);
	u32 all, heard, peer_heard;

	if (first)
		lk->probed_since = jiffies;
	lk->probing = true;
	mutex_lock(&lk->io);
	if (!lk->running) {
		mutex_unlock(&lk->io);
		return 0;
	}
	lk->client->look(lk);
	all = BIT(lk->pairs) - 1;
	heard = atomic_read(&lk->heard);
	peer_heard = atomic_read(&lk->peer_heard);
	if ((heard & peer_heard) == all) {
		lk->epoch++;
		lk->client->up(lk);
	} else if (!late) {
		lk->client->probe(lk, first);
	}
	mutex_unlock(&lk->io);
	if ((heard & peer_heard) == all) {
		ls_all_carry(lk);
		ls_set_state(lk, LS_STATE_UP);
		dev_dbg(&lk->dev, "up with %u ring pairs\n", hweight32(all));
		return lk->out_s * MSEC_PER_SEC;
	}
	if (!late)
		return 50;
	ls_not_all_carry(lk, all, heard, peer_heard);
	return 1000;
}

static unsigned int ls_ask_ready(struct ls_link *lk)
{
	struct ls_packet p;
	u32 session = lk->session;
	int ret;

	if (lk->probing)
		return ls_verify(lk);
	if (++lk->tries > LS_READY_TRIES) {
		ls_restart(lk, "the peer does not get ready");
		return 1000;
	}
	ls_fill(lk, &p, LS_READY_REQ);
	p.request = ++lk->request;
	mutex_unlock(&lk->login);
	ret = ls_ask(lk, &p, LS_TIMEOUT_MS);
	mutex_lock(&lk->login);
	if (ret || p.status != LS_OK || lk->state != LS_STATE_READY || lk->session != session)
		return 50;
	return ls_verify(lk);
}

/* With pairs left out, and nobody who would miss the link: they may be there by now. login is held. */
static unsigned int ls_try_again(struct ls_link *lk)
{
	bool used;

	if (!lk->out_s)
		return 0;
	if (!ls_again_is_due(lk))
		return 1000;
	mutex_lock(&lk->io);
	used = lk->running && lk->client->used(lk);
	mutex_unlock(&lk->io);
	if (used)
		return 10000;
	dev_dbg(&lk->dev, "ring pairs that were left out are tried again\n");
	ls_down_for_peer(lk);
	return 0;
}

static void ls_login_work(struct work_struct *work)
{
	struct ls_link *lk = container_of(work, struct ls_link, login_work.work);
	struct ls_packet p;
	unsigned int ms = 0;
	bool logout;

	mutex_lock(&lk->login);
	if (test_bit(LS_GONE, &lk->flags)) {
		mutex_unlock(&lk->login);
		return;
	}
	logout = lk->logout;
	lk->logout = false;
	if (logout) {
		ls_fill(lk, &p, LS_LOGOUT_REQ);
		p.request = ++lk->request;
		mutex_unlock(&lk->login);
		ls_ask(lk, &p, 100);
		mutex_lock(&lk->login);
		lk->session = ls_new_session(lk);
	}
	if (!ls_is_allowed(lk)) {
		if (lk->state > LS_STATE_LOGIN)
			ls_down_for_peer(lk);
		else
			ls_set_state(lk, LS_STATE_WAITING);
	} else if (lk->state == LS_STATE_WAITING) {
		lk->told = false;
		ls_set_state(lk, LS_STATE_LOGIN);
	}
	switch (lk->state) {
	case LS_STATE_LOGIN:
		ms = ls_ask_login(lk);
		break;
	case LS_STATE_READY:
		ms = ls_ask_ready(lk);
		break;
	case LS_STATE_UP:
		ms = ls_try_again(lk);
		break;
	default:
		break;
	}
	/* Whatever kicked it meanwhile is not put off. */
	if (ms && !delayed_work_pending(&lk->login_work))
		ls_again(lk, ms);
	mutex_unlock(&lk->login);
}

/* The pairs that both have, for the mode of both. login is held. */
static void ls_choose(struct ls_link *lk)
{
	int i, n = 0;

	mutex_lock(&lk->io);
	for (i = 0; i < LS_PAIRS; i++) {
		const struct ls_offer *o = &lk->offer[i];

		if (!o->in_hop || !o->out_hop)
			continue;
		lk->pair[n].in_hop = o->in_hop;
		lk->pair[n].out_hop = o->out_hop;
		lk->pair[n].id = i;
		n++;
	}
	lk->pairs = n;
	lk->client = ls_clients[lk->mode];
	mutex_unlock(&lk->io);
}

static void ls_path_up(struct ls_link *lk)
{
	int ret;

	mutex_lock(&lk->login);
	if (lk->state != LS_STATE_STARTING) {
		mutex_unlock(&lk->login);
		return;
	}
	ls_choose(lk);
	lk->own_session = lk->session;
	lk->their_session = lk->peer_session;
	lk->probing = false;
	mutex_unlock(&lk->login);
	ret = ls_rings_up(lk);
	if (!ret) {
		ret = ls_paths_up(lk);
		if (ret && ls_domain_free(lk))
			ls_rings_down(lk);
	}
	mutex_lock(&lk->login);
	if (test_bit(LS_GONE, &lk->flags)) {
		mutex_unlock(&lk->login);
		return;
	}
	if (ret) {
		/* Where it has no ring or path for one, it has none for those behind it. */
		if (ret == -EAGAIN)
			ls_do_without(lk, GENMASK(LS_PAIRS - 1, lk->bad_pair), lk->bad_why, lk->bad_error);
		else if (ret != lk->up_error)
			dev_err(&lk->dev, "rings or paths cannot be set up: %d; tried again every 5 s\n", ret);
		lk->up_error = ret;
		ls_forget(lk, true, LS_STATE_LOGIN);
		ls_again(lk, ret == -EAGAIN ? 50 : 5000);
	} else {
		lk->up_error = 0;
		lk->tries = 0;
		ls_set_state(lk, LS_STATE_READY);
		ls_kick(lk);
	}
	mutex_unlock(&lk->login);
}

static void ls_path_down(struct ls_link *lk)
{
	clear_bit(LS_WANT_UP, &lk->flags);
	/* Else it is done by ls_login_stop(). */
	if (!ls_domain_free(lk))
		return;
	ls_rings_down(lk);
	mutex_lock(&lk->login);
	if (!test_bit(LS_GONE, &lk->flags)) {
		ls_forget(lk, true, LS_STATE_LOGIN);
		clear_bit(LS_WANT_DOWN, &lk->flags);
		ls_again(lk, 50);
	}
	mutex_unlock(&lk->login);
}

static void ls_path_work(struct work_struct *work)
{
	struct ls_link *lk = container_of(work, struct ls_link, path_work);
	struct device *sw = lk->xd->dev.parent, *domain = &lk->xd->tb->dev;
	bool gone;

	mutex_lock(&lk->login);
	gone = test_bit(LS_GONE, &lk->flags);
	if (!gone) {
		get_device(sw);
		get_device(domain);
		lk->path_busy = true;
	}
	mutex_unlock(&lk->login);
	if (gone) {
		put_device(&lk->dev);
		return;
	}
	if (test_bit(LS_WANT_DOWN, &lk->flags))
		ls_path_down(lk);
	else if (test_and_clear_bit(LS_WANT_UP, &lk->flags))
		ls_path_up(lk);
	mutex_lock(&lk->login);
	lk->path_busy = false;
	mutex_unlock(&lk->login);
	wake_up_all(&lk->wait);
	put_device(domain);
	put_device(sw);
	put_device(&lk->dev);
}

void ls_login_init(struct ls_link *lk)
{
	INIT_DELAYED_WORK(&lk->login_work, ls_login_work);
	INIT_WORK(&lk->path_work, ls_path_work);
	lk->session = ls_new_session(lk);
}

/* What was agreed so far was for another mode. login is held. */
void ls_login_mode(struct ls_link *lk, enum ls_mode mode)
{
	if (lk->mode == mode)
		return;
	lk->mode = mode;
	lk->told = false;
	lk->modes_differ = false;
	if (test_bit(LS_GONE, &lk->flags))
		return;
	if (lk->state > LS_STATE_LOGIN) {
		ls_down_for_peer(lk);
		return;
	}
	lk->peer_session = 0;
	lk->accepted_by = 0;
	lk->session = ls_new_session(lk);
	ls_kick(lk);
}

/* At removal, shutdown and suspend: nothing of ours runs or is mapped after it. */
void ls_login_stop(struct ls_link *lk, bool tell)
{
	struct ls_packet p;

	mutex_lock(&lk->login);
	set_bit(LS_GONE, &lk->flags);
	tell = tell && lk->peer_session;
	ls_fill(lk, &p, LS_LOGOUT_REQ);
	p.request = ++lk->request;
	mutex_unlock(&lk->login);

	cancel_delayed_work_sync(&lk->login_work);
	/* Setting up takes as long as it takes to find memory; the core may wait for a lock that our caller holds. */
	wait_event(lk->wait, !READ_ONCE(lk->path_busy) || READ_ONCE(lk->in_core));
	wait_event_timeout(lk->wait, !READ_ONCE(lk->path_busy), LS_CORE_PATIENCE);
	ls_rings_down(lk);
	/* The peer still sees the old session: it stops before it hears of a new one. */
	if (tell)
		ls_ask(lk, &p, 200);
	mutex_lock(&lk->login);
	lk->session = ls_new_session(lk);
	clear_bit(LS_WANT_DOWN, &lk->flags);
	clear_bit(LS_WANT_UP, &lk->flags);
	lk->up_error = 0;
	ls_forget(lk, false, test_bit(LS_ASLEEP, &lk->flags) ? LS_STATE_LOGIN : LS_STATE_GONE);
	mutex_unlock(&lk->login);
}
