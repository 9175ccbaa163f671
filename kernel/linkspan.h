/* SPDX-License-Identifier: GPL-2.0 */
/* What the files of linkspan.ko share. Locks: see the top of each file. */
#ifndef LINKSPAN_H
#define LINKSPAN_H

#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/dma-mapping.h>
#include <linux/eventfd.h>
#include <linux/iosys-map.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/thunderbolt.h>
#include <linux/uuid.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "uapi/linkspan.h"

#define LS_CTL_FRAMES	128	/* control frames, of each direction */
#define LS_SHARED	128	/* data frames, of each kind, between control frames in the first TX ring */
#define LS_BOUNCES	128	/* frames that are copied, of each direction of a pair, at most */
#define LS_RINGS	(2 * LS_PAIRS)	/* tx and rx of each pair */
#define LS_MARKS	(14 * 15)	/* different marks of data frames */
#define LS_WINDOW	(LS_MARKS - 1)	/* data frames of a ring that the receiver has not told of */
#define LS_SOF		1	/* of control, and of what is no part of a message */
#define LS_FRAME_MASK	(LS_FRAME_BYTES - 1)
#define LS_PROBE_ASKS	BIT(8)	/* in PROBE: the mask of pairs is to be answered */
#define LS_BAD		(RING_DESC_CRC_ERROR | RING_DESC_BUFFER_OVERRUN)

/* Bits of ls_link.flags. */
#define LS_GONE		0	/* the service is being removed */
#define LS_WANT_DOWN	1	/* rings are to be stopped */
#define LS_WANT_UP	2	/* both have accepted each other */
#define LS_ASLEEP	3	/* the system is suspended */

struct ls_link;
struct ls_file;

struct ls_region {
	struct list_head list;
	struct list_head mapping;
	u32 id;
	u32 flags;
	u64 length;
	u32 head;		/* offset of the first byte in the first page */
	unsigned long npages;
	struct page **pages;
	dma_addr_t *dma;	/* of each page */
	struct sg_table sgt;
	struct sg_table *map;	/* &sgt, or that of the dma-buf */
	enum dma_data_direction dir;
	bool sync;		/* the device has some page elsewhere, or not coherent */
	struct device *dev;
	struct mm_struct *mm;
	struct dma_buf *dmabuf;
	struct dma_buf_attachment *attach;
	struct iosys_map vmap;
	u64 start;		/* offset of the region in a dma-buf */
	int users;		/* operations on it; under io */
	bool dead;
};

struct ls_op {
	struct list_head all;	/* in ls_link.ops */
	struct list_head list;	/* in the list that its state is */
	struct ls_file *file;
	struct ls_region *region;
	u64 cookie;
	u64 pos;		/* from the start of the first page */
	u64 len;
	u64 moved;		/* a send: up to where it was given to the rings; a receive: from where it is granted */
	u64 to;			/* up to where it is granted */
	u64 first, end;		/* data frames: first of a granted receive; the one after the last */
	u64 bad_from, bad_to;	/* what arrived damaged; none where both are 0 */
	u64 last;		/* length of what was granted last; of a receive that was granted once 0 */
	u64 order;		/* among long messages, by our own count: a peer's ids may be anything */
	u64 seen;		/* how far it was when the watch saw it get on, */
	unsigned long since;	/* at this time, in jiffies */
	u32 busy;		/* frames of it in the TX ring */
	u32 tries;
	bool received;		/* the peer has all of it */
	bool again;		/* a part of it was granted again: later ones may be faster */
	u32 id;
	u32 channel;
	u32 opcode;
	u32 peer_head;		/* offset in a page of the receiver's first byte */
};

/* Types of control frames. */
enum {
	LS_MSG = 1,
	LS_RTS,
	LS_CTS,
	LS_CREDIT,
	LS_CHAN_OPEN,
	LS_CHAN_CLOSE,
	LS_CHAN_ACK,
	LS_COUNT,
	LS_PROBE,
	LS_DONE,
	LS_PART,
	LS_VOID,
	LS_EMPTY,
	LS_ASK,
};

/* Of a control frame. */
struct ls_header {
	__le32 seq;		/* COUNT, PROBE: 0, they are not counted */
	u8 type;
	u8 reserved0;
	__le16 channel;
	__le32 id;		/* of a message; OPEN, CREDIT: credits; VOID, EMPTY: round; COUNT: 1 for "again" */
	__le32 length;		/* MSG: bytes that follow; RTS: of the message; CTS: offset in its page */
	__le32 acked;		/* control frames that have arrived in order */
	__le32 data;		/* data frames that have arrived in order */
	/* PART: of its first byte; PROBE: the receiver's session; VOID: fences; EMPTY, ASK: data frames sent */
	__le64 from;
};

static_assert(sizeof(struct ls_header) == LS_FRAME_BYTES - LS_EAGER_BYTES);

struct ls_frame {
	struct ring_frame rf;
	struct list_head list;	/* free */
	struct page *page;	/* a frame that is copied */
	dma_addr_t dma;
	struct ls_op *op;	/* of a data frame; none: it is no part of a message */
	u32 len;
	u32 seq;		/* of a control frame out */
	bool in_ring, unacked;	/* of a control frame out */
	bool out;		/* its page is sent from */
	u64 pos;
};

struct ls_msg {
	u32 id;
	u32 len;
	bool rts;
};

enum ls_local { LS_FREE, LS_OPEN, LS_CLOSING };

struct ls_chan {
	struct list_head ready;
	struct ls_file *owner;
	u32 id;
	enum ls_local local;
	bool hup;		/* the peer has closed what it shared with our owner */
	bool remote_open;
	bool need_open;
	bool need_close;
	bool need_ack;
	unsigned long closing;	/* jiffies: since when */
	u32 credits;		/* messages that the peer has space for */
	u32 give;		/* transport that the peer does not know of */
	struct list_head sends;	/* not begun */
	struct list_head rts;	/* announced, not granted */
	struct list_head recvs;	/* without a message */
	struct list_head grants; /* to be granted */
	struct ls_msg msg[LS_CREDITS];
	u32 msg_head, msg_tail;
	u8 *buf;		/* LS_CREDITS times LS_FRAME_BYTES */
};

/* A ring pair in use. The first one carries control, too. */
struct ls_pair {
	struct tb_ring *tx, *rx;
	int in_hop, out_hop;
	int id;			/* in the login */
	struct ls_op *at;	/* the receive of the last data frame that was posted; on the first pair, that came */
	u64 post;		/* number of the data frame to be posted next */
	u64 next;		/* number of the data frame that comes next */
	u32 posted;		/* pages for data in the RX ring */
	struct list_head tx_free, tx_bounce, rx_free, rx_bounce;
};

/* What the login knows of each ring pair that there could be. */
struct ls_offer {
	int in_hop, out_hop;	/* 0: none */
	bool out;		/* left out, until it is tried again */
	u32 why;		/* LS_PAIR_: if left out */
	int error;
	int silent;		/* how often it carried nothing, one after the other */
};

/* Modes, as in the login. */
enum ls_mode { LS_MODE_DIRECT, LS_MODE_NETWORK, LS_MODES };

/*
 * What uses the rings of a link: direct.c or net.c, by the mode. All but event(),
 * quiet() and idle() are called with io held; the first to be called is prepare(),
 * the last is release(), also where prepare() failed.
 */
struct ls_client {
	const char *name;	/* of the mode */
	int (*prepare)(struct ls_link *lk);	/* makes the rings of lk->pairs, and frames for them */
	int (*start)(struct ls_link *lk);	/* they run: posts receives */
	void (*event)(struct ls_link *lk, int ring); /* in its interrupt, masked: frames were sent or received */
	bool (*look)(struct ls_link *lk);	/* for frames that nobody has told of */
	void (*probe)(struct ls_link *lk, bool first); /* sends PROBE over the pairs, at first over each */
	void (*up)(struct ls_link *lk);		/* every pair has carried a frame, both ways */
	bool (*used)(struct ls_link *lk);	/* somebody would miss the link */
	void (*quiet)(struct ls_link *lk);	/* stops what is woken by anything but event(), for good */
	void (*idle)(struct ls_link *lk);	/* and what event() wakes; more than once */
	void (*release)(struct ls_link *lk);	/* rings are stopped: everything is let go */
};

/* What the interrupt of a ring is given. */
struct ls_doorbell {
	struct ls_link *lk;
	int bit;
};

struct ls_link {
	struct device dev;
	struct cdev cdev;
	struct list_head links;
	int index;
	struct tb_xdomain *xd;
	unsigned long flags;

	/* login.c, under login */
	struct mutex login;
	u32 state;
	u32 session, peer_session, accepted_by;
	u64 peer_route;		/* to us, while there is a session of the peer */
	enum ls_mode mode;
	bool modes_differ;	/* the peer is in the other mode */
	u32 request;
	bool hops_in, hops_out;
	struct ls_offer offer[LS_PAIRS];
	u32 peer_hops[LS_PAIRS];
	unsigned int out_s;	/* until what is left out is tried again, then twice as long; 0: nothing is */
	unsigned long out_since; /* jiffies */
	bool probing;
	unsigned long probed_since; /* jiffies */
	int up_error;		/* last reason why rings or paths were not set up */
	bool forced, denied, told;
	bool logout;
	int tries;
	int unanswered;		/* login_work's own */
	struct delayed_work login_work;
	struct work_struct path_work;
	bool path_busy, in_core; /* path_work: runs; is with the Thunderbolt core, which may wait for its own lock */
	struct mutex teardown;
	wait_queue_head_t wait;
	struct mutex mode_lock;	/* one change of the mode at a time */
	struct net_device *net;	/* in the mode network; under mode_lock, there as long as rings are its */

	/* under io */
	struct mutex io;
	const struct ls_client *client;	/* of the rings that there are */
	bool running;
	u32 epoch;
	struct ls_pair pair[LS_PAIRS];
	int pairs;		/* in use */
	int paths;		/* enabled */
	int bad_pair, bad_error; /* path_work's own: what it was that could not be set up, and why */
	u32 bad_why;
	struct ls_doorbell doorbell[LS_RINGS];
	/* Ring pairs that have carried a frame, here and at the peer. */
	atomic_t heard, peer_heard;
	u32 own_session, their_session;
	u64 pair_tx[LS_PAIRS], pair_rx[LS_PAIRS];	/* frames with payload, by the pair's number in the login */
	u64 restarts;
	atomic64_t interrupts;
	struct dentry *debug;

	/* The mode direct, under io */
	bool sending;
	u32 ring_size;
	struct work_struct io_work;
	unsigned long masked;	/* rings that io_work is to unmask; atomic */
	unsigned long came;	/* rings that ls_poll() found something on; io */
	struct list_head files, ops, ready;
	struct list_head to_send, sent;		/* granted to us: with frames to send; without */
	struct list_head granted;		/* by us, in the order of their frames */
	struct list_head finished, parts;	/* to be told of: all has arrived; a part is granted again */
	struct list_head ctl_free, unacked;
	struct ls_frame *frames;
	u32 nframes;
	u64 tx_seq, rx_seq;	/* data frames sent; that have arrived in order, over all pairs */
	u64 rx_end;		/* of which so many are granted */
	u64 tx_told, rx_told;	/* of those, what the peer has told; what it was told */
	u32 ctl_tx_seq, ctl_rx_seq, ctl_acked;
	u32 nctl_free;
	u32 ack_due;		/* control frames that have arrived since the peer was told */
	bool count_due, again_due, gap, gap_known;
	unsigned long ctl_since, gap_since;	/* jiffies: last progress of ours; since when one is missing */
	unsigned long resent_at;
	u32 tx_busy;		/* data frames in the TX rings */
	u32 ending;		/* messages that have arrived before their frames left these */
	u64 rx_count;		/* data frames taken off the rings */
	/* Data whose order was lost, as the receiver; then as the sender. */
	u32 again;		/* receives of which a part was granted again */
	bool voiding, void_due, void_empty, suspect;
	u32 void_round, void_quiet, void_idle;
	u64 void_fences;	/* LS_FENCE_BITS for each pair */
	u64 void_count, void_frames;
	u64 void_seq;		/* what the sender had sent when its ring was empty */
	u64 suspect_seq;	/* what it said that it has sent */
	unsigned long void_since;
	bool empty_due;
	u32 empty_round, fences[LS_PAIRS];
	bool ask_due;
	u32 asks;		/* without an answer */
	unsigned long asked;	/* jiffies: then, or since something was sent or told */
	bool probe_due;
	u64 order;		/* long messages so far, both ways */
	struct ls_chan *chans;
	struct list_head reap;
	struct work_struct reap_work;
	struct delayed_work tick;
	bool ticking;
	unsigned int tick_ms;
	unsigned long watched;	/* jiffies: when ls_watch_tick() looked last */
	u64 moves, tick_moves;	/* what went on: now, at the last tick */
	u64 resent, doubled, gaps, damaged, voids;
	u64 found;		/* frames that ls_tick() found, not an interrupt */
	u64 tx_frames, rx_frames, tx_bytes, rx_bytes, copied, control, doorbells;
	u64 polls, pages;
	u64 polled;		/* frames that polling took off rings */
};

struct ls_file {
	struct kref kref;
	struct list_head list;
	struct ls_link *lk;
	struct mutex setup;	/* HELLOs, one at a time */
	bool ready, dead, closed;
	fl_owner_t owner;	/* the files of the process that said HELLO, which alone may use it */
	struct ls_queue *q;
	struct page **pages;	/* of the queues */
	size_t map_bytes;
	struct ls_sqe *sq;
	struct ls_cqe *cq;
	u32 sq_entries, cq_entries;
	u32 sq_head, cq_tail;
	u32 live;
	struct ls_op *ops;
	struct list_head free_ops;
	struct xarray regions;
	wait_queue_head_t wait;
	struct eventfd_ctx *event;
};

/* main.c */
extern struct workqueue_struct *ls_wq, *ls_io_wq;
extern unsigned int ls_ring_size, ls_ring_pairs, ls_throttling_ns;
extern const struct ls_client *const ls_clients[LS_MODES];
bool ls_allowed(const uuid_t *uuid);
u32 ls_shown_state(const struct ls_link *lk);
bool ls_prove(const void *data, size_t len, u64 proof[2]);
struct ls_link *ls_find(u64 route, const uuid_t *from, const uuid_t *to);

/* login.c */
extern struct tb_protocol_handler ls_handler;
extern atomic_t ls_in_handler;
void ls_login_init(struct ls_link *lk);
void ls_login_mode(struct ls_link *lk, enum ls_mode mode);
void ls_kick(struct ls_link *lk);
void ls_restart(struct ls_link *lk, const char *why);
void ls_login_stop(struct ls_link *lk, bool tell);

/* ring.c */
struct device *ls_dma_dev(struct ls_link *lk);
struct tb_ring *ls_ring(struct ls_link *lk, int bit);
void ls_ring_unmask(struct tb_ring *ring);
int ls_pair_alloc(struct ls_link *lk, int i, u32 size);
void ls_pairs_free(struct ls_link *lk, int from);
int ls_cannot(struct ls_link *lk, int i, u32 why, int error);
int ls_rings_up(struct ls_link *lk);
int ls_paths_up(struct ls_link *lk);
void ls_rings_down(struct ls_link *lk);
void ls_core(struct ls_link *lk, bool in);
bool ls_domain_free(struct ls_link *lk);

/* net.c */
extern const struct ls_client ls_network;
int ls_net_add(struct ls_link *lk);
void ls_net_remove(struct ls_link *lk);

/* direct.c */
extern const struct ls_client ls_direct;
void ls_frame_tx(struct ls_link *lk, int pair, struct ls_frame *f, u32 len, u8 sof, u8 eof);
int ls_frame_rx(struct ls_link *lk, int pair, struct ls_frame *f);
bool ls_poll(struct ls_link *lk);
void ls_unmask_soon(struct ls_link *lk, unsigned long rings);
bool ls_tx_wanted(struct ls_link *lk);
void ls_io_work(struct work_struct *work);

/* control.c */
void ls_ctl_reset(struct ls_link *lk);
void ls_control(struct ls_link *lk, struct ls_frame *f);
struct ls_frame *ls_ctl_frame(struct ls_link *lk);
void ls_ctl_send(struct ls_link *lk, struct ls_frame *f, u32 len);
void ls_ctl_free(struct ls_link *lk, struct ls_frame *f);
void ls_ctl_sent(struct ls_link *lk, struct ls_frame *f);
void ls_ctl_counts(struct ls_link *lk);
void ls_ctl_tick(struct ls_link *lk);
void ls_ctl_probe(struct ls_link *lk, bool first);
bool ls_probed(struct ls_link *lk, int pair, const struct ls_header *h);

/* data.c */
void ls_data_reset(struct ls_link *lk);
void ls_pump_data(struct ls_link *lk);
void ls_grant(struct ls_link *lk, struct ls_op *op);
void ls_post_rx(struct ls_link *lk);
int ls_post_spare(struct ls_link *lk, int pair);
void ls_data_rx(struct ls_link *lk, int pair, struct ls_frame *f);
void ls_data_shared(struct ls_link *lk, struct ls_frame *f);
bool ls_data_waits(struct ls_link *lk);
void ls_data_tx(struct ls_link *lk, struct ls_frame *f);
u32 ls_say_data(struct ls_link *lk, struct ls_header *h);
const char *ls_data_told(struct ls_link *lk, u32 count);
bool ls_data_due(struct ls_link *lk);
const char *ls_got_data(struct ls_link *lk, const struct ls_header *h);
u64 ls_data_progress(struct ls_link *lk, const struct ls_op *op);
void ls_data_tick(struct ls_link *lk);

/* flow.c */
void ls_flow_init(struct ls_link *lk);
void ls_flow_reset(struct ls_link *lk);
void ls_wrong(struct ls_link *lk, const char *what);
void ls_ready(struct ls_link *lk, struct ls_chan *c);
void ls_tick_soon(struct ls_link *lk);
void ls_pump(struct ls_link *lk);
const char *ls_got(struct ls_link *lk, struct ls_header *h, u32 len);
void ls_complete(struct ls_link *lk, struct ls_op *op, int result, u64 len);
void ls_take(struct ls_file *f, const struct ls_sqe *sqe);
int ls_chan_open(struct ls_file *f, u32 id, u8 *buf);
int ls_chan_close(struct ls_file *f, u32 id);
void ls_chan_close_all(struct ls_file *f);

/* memory.c */
int ls_region_add(struct ls_file *f, struct ls_ioc_register *arg);
int ls_region_remove(struct ls_file *f, u32 id);
void ls_regions_drop(struct ls_file *f, struct list_head *reap);
void ls_regions_free(struct list_head *reap);
void ls_region_put(struct ls_link *lk, struct ls_region *r);
void ls_region_copy(struct ls_region *r, u64 pos, void *buf, u32 len, bool in);
dma_addr_t ls_region_dma(struct ls_region *r, u64 pos);
void ls_region_sync(struct ls_region *r, u64 pos, u32 len, bool for_cpu);
void ls_reap(struct work_struct *work);
void ls_reap_soon(struct ls_link *lk);
int ls_memory_init(void);
void ls_memory_exit(void);

/* debug.c */
void ls_debug_init(void);
void ls_debug_exit(void);
void ls_debug_add(struct ls_link *lk);
void ls_debug_remove(struct ls_link *lk);

/* chardev.c */
extern const struct file_operations ls_fops;
void ls_file_free(struct kref *kref);
void ls_file_wake(struct ls_file *f);
void ls_file_dead(struct ls_file *f);

#endif
