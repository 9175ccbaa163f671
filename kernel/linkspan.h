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
#include <linux/thunderbolt.h>
#include <linux/uuid.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "uapi/linkspan.h"

#define LS_CTL_FRAMES	128	/* of each direction of the control ring */
#define LS_BOUNCES	64	/* frames that are copied, of each direction, at most */
#define LS_RINGS	4	/* tx and rx of the control pair, then of the data pair */
#define LS_FRAME_MASK	(LS_FRAME_BYTES - 1)

/* Bits of ls_link.flags. */
#define LS_GONE		0	/* the service is being removed */
#define LS_WANT_DOWN	1	/* rings are to be stopped */
#define LS_WANT_UP	2	/* both have accepted each other */
#define LS_ASLEEP	3	/* the system is suspended */

struct ls_link;
struct ls_file;

struct ls_region {
	struct list_head list;
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
	u64 moved;		/* bytes given to the ring */
	u64 done;		/* bytes that the ring is done with */
	u32 id;
	u32 channel;
	u32 opcode;
	u32 peer_head;		/* offset in a page of the receiver's first byte */
	bool old;
};

struct ls_frame {
	struct ring_frame rf;
	struct list_head list;	/* free */
	struct page *page;	/* a frame that is copied */
	dma_addr_t dma;
	struct ls_op *op;
	u32 len;
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
	bool old;
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

struct ls_pair {
	struct tb_ring *tx, *rx;
	int in_hop, out_hop;
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
	u32 request;
	bool hops_in, hops_out;
	bool single;		/* no second ring pair here: control and data share one */
	bool peer_single;	/* nor there */
	bool forced, denied, told;
	bool logout;
	int tries;
	int unanswered;		/* login_work's own */
	struct delayed_work login_work;
	struct work_struct path_work;
	wait_queue_head_t wait;

	/* under io */
	struct mutex io;
	bool running;
	bool sending;
	u32 epoch;
	u32 ring_size;
	struct ls_pair pair[2];	/* control, data; or both on the first */
	int pairs;		/* in use */
	int paths;		/* enabled */
	struct work_struct io_work;
	struct ls_doorbell doorbell[LS_RINGS];
	unsigned long masked;	/* rings, until io_work has looked; atomic */
	struct list_head files, ops, ready, to_send, to_post;
	struct list_head ctl_free;
	struct list_head tx_free, tx_bounce, rx_free, rx_bounce;
	struct ls_frame *frames;
	u32 nframes, nbounces;
	u32 tx_seq, rx_seq, ctl_tx_seq, ctl_rx_seq;
	u32 next_id;
	struct ls_chan *chans;
	struct list_head reap;
	struct work_struct reap_work;
	u32 mapped;		/* regions that the rings' device is held for */
	struct delayed_work watch;
	u64 tx_frames, rx_frames, tx_bytes, rx_bytes, copied, control, doorbells;
	u64 restarts, polls, pages;
	u64 polled;		/* frames that polling took off rings */
	u64 polled_ns;
	u32 pollers;
	atomic64_t interrupts;
	struct dentry *debug;
};

struct ls_file {
	struct kref kref;
	struct list_head list;
	struct ls_link *lk;
	struct mutex setup;	/* HELLOs, one at a time */
	bool ready, dead, closed;
	struct ls_queue *q;
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
	struct task_struct *poller;
	wait_queue_head_t wake;	/* the poller */
	u64 idle_ns, ran;
	bool polling, woken;
};

/* main.c */
extern struct workqueue_struct *ls_wq, *ls_io_wq;
extern unsigned int ls_ring_size, ls_ring_pairs, ls_throttling_ns, ls_max_pollers;
bool ls_allowed(const uuid_t *uuid);
bool ls_prove(const void *data, size_t len, u64 proof[2]);
struct ls_link *ls_find(u64 route, const uuid_t *from, const uuid_t *to);

/* login.c */
extern struct tb_protocol_handler ls_handler;
extern atomic_t ls_in_handler;
void ls_login_init(struct ls_link *lk);
void ls_kick(struct ls_link *lk);
void ls_restart(struct ls_link *lk, const char *why);
void ls_login_stop(struct ls_link *lk, bool tell);

/* ring.c */
int ls_rings_up(struct ls_link *lk);
void ls_rings_down(struct ls_link *lk);
void ls_frame_tx(struct ls_link *lk, int pair, struct ls_frame *f, u32 len);
int ls_frame_rx(struct ls_link *lk, int pair, struct ls_frame *f);
bool ls_poll(struct ls_link *lk);
void ls_io_work(struct work_struct *work);

/* flow.c */
void ls_flow_init(struct ls_link *lk);
void ls_flow_reset(struct ls_link *lk);
void ls_pump(struct ls_link *lk);
void ls_post_rx(struct ls_link *lk);
void ls_control(struct ls_link *lk, struct ls_frame *f);
void ls_data_rx(struct ls_link *lk, struct ls_frame *f);
void ls_data_shared(struct ls_link *lk, struct ls_frame *f);
void ls_data_tx(struct ls_link *lk, struct ls_frame *f);
void ls_complete(struct ls_link *lk, struct ls_op *op, int result, u64 len);
void ls_take(struct ls_file *f, const struct ls_sqe *sqe);
int ls_chan_open(struct ls_file *f, u32 id);
int ls_chan_close(struct ls_file *f, u32 id);
void ls_chan_close_all(struct ls_file *f);

/* memory.c */
int ls_region_add(struct ls_file *f, struct ls_ioc_register *arg);
int ls_region_remove(struct ls_file *f, u32 id);
void ls_regions_drop(struct ls_file *f, struct list_head *reap);
void ls_regions_free(struct ls_link *lk, struct list_head *reap);
void ls_region_put(struct ls_link *lk, struct ls_region *r);
int ls_region_copy(struct ls_region *r, u64 pos, void *buf, u32 len, bool in);
dma_addr_t ls_region_dma(struct ls_region *r, u64 pos);
void ls_region_sync(struct ls_region *r, u64 pos, u32 len, bool for_cpu);
void ls_reap(struct work_struct *work);

/* debug.c */
void ls_debug_init(void);
void ls_debug_exit(void);
void ls_debug_add(struct ls_link *lk);
void ls_debug_remove(struct ls_link *lk);

/* chardev.c */
extern const struct file_operations ls_fops;
void ls_file_free(struct kref *kref);
void ls_file_wake(struct ls_file *f);
int ls_waiting(struct ls_file *f);
int ls_submit(struct ls_file *f, u32 *taken);

/* poller.c */
int ls_poller_make(struct ls_file *f, u32 idle_us);
void ls_poller_wake(struct ls_file *f);
void ls_poller_stop(struct ls_file *f);
void ls_polling(struct ls_file *f, bool yes);

#endif
