/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * What programs and linkspan.ko say to each other over /dev/linkspan/<n>.
 *
 * The first call on an open file is LS_IOC_HELLO. It fixes the version, makes
 * the queues, and says how many bytes mmap() at offset 0 maps: one page with
 * the indices (struct ls_queue), the submission entries, the completion
 * entries. All numbers are of the machine's own byte order. No structure has a
 * hole; reserved fields must be 0.
 */
#ifndef LINKSPAN_UAPI_H
#define LINKSPAN_UAPI_H

#include <linux/const.h>
#include <linux/ioctl.h>
#include <linux/types.h>

#define LS_ABI_VERSION		1

/* Bytes of a frame of the host interface: its length field has 12 bits. */
#define LS_FRAME_BYTES		4096
/* Longest message that travels without a grant: a frame less its header. */
#define LS_EAGER_BYTES		4064
/* Longest message. */
#define LS_MESSAGE_BYTES	_BITULL(30)
/* Channels of a link: ids 0 to 255. */
#define LS_CHANNELS		256
/* Messages that a channel's reader holds while they are not asked for. */
#define LS_CREDITS		16
/* Regions of an open file. */
#define LS_REGIONS		1024
/* Longest region. */
#define LS_REGION_BYTES		_BITULL(36)
/* Ring pairs of a link at most. */
#define LS_PAIRS		4
/* Entries of a queue: powers of two in these limits. */
#define LS_ENTRIES_MIN		8
#define LS_ENTRIES_MAX		4096

/* States of a link, as in ls_ioc_info.state. */
#define LS_STATE_WAITING	0	/* the peer is not on the allow-list */
#define LS_STATE_LOGIN		1	/* the peer has not answered yet */
#define LS_STATE_STARTING	2	/* rings and paths are being set up */
#define LS_STATE_READY		3	/* ours are; the peer's are not known to be */
#define LS_STATE_UP		4
#define LS_STATE_GONE		5	/* unplugged or unloaded */
#define LS_STATE_NETWORK	6	/* up, and its rings are those of the network interface */
#define LS_STATE_MODES		7	/* the peer is in the other mode, direct or network */

/*
 * Taken, and without effect: no thread of the kernel polls for a program. The
 * flag LS_QUEUE_WAKE is set for good, so entries need a doorbell; completions
 * come into the queue by themselves. LS_DOORBELL_POLL polls in the caller.
 */
#define LS_HELLO_POLL		1

#define LS_POLL_IDLE_US		1000
#define LS_POLL_IDLE_MAX_US	1000000

struct ls_ioc_hello {
	__u32 version;		/* in: LS_ABI_VERSION; out: the driver's */
	__u32 timeout_ms;	/* in: how long to wait for the link to be up */
	__u32 sq_entries;	/* in, out */
	__u32 cq_entries;	/* in, out */
	__u64 map_bytes;	/* out */
	__u64 sq_offset;	/* out: of the first struct ls_sqe in the map */
	__u64 cq_offset;	/* out: of the first struct ls_cqe */
	__u32 channels;		/* out */
	__u32 eager_bytes;	/* out */
	__u64 message_bytes;	/* out */
	__u32 flags;		/* in: LS_HELLO_ */
	__u32 idle_us;		/* in: at most LS_POLL_IDLE_MAX_US; without effect */
	__u64 reserved;
};

struct ls_ioc_info {
	__u8 local_uuid[16];
	__u8 peer_uuid[16];
	__u32 state;		/* LS_STATE_ */
	__u32 epoch;		/* how often the link has come up */
	__u32 link_speed;	/* Gb/s of a lane, as negotiated */
	__u32 link_width;	/* lanes: 1, 2, or asymmetric 4 (tx), 8 (rx) */
	__u32 ring_size;	/* entries of the rings that carry data only */
	__u32 ring_pairs;	/* in use */
	__u32 in_hopid[2];	/* of the first two ring pairs; all: LS_IOC_PAIRS */
	__u32 out_hopid[2];
	__u64 tx_frames;	/* data frames since the module was loaded */
	__u64 rx_frames;
	__u64 tx_bytes;
	__u64 rx_bytes;
	__u64 copied_bytes;	/* of those, moved by a CPU, either way */
	__u64 control_frames;	/* sent */
	__u64 doorbells;	/* LS_IOC_DOORBELL calls */
	__u64 restarts;		/* for a peer that broke the protocol */
	__u64 polled_ns;	/* 0 */
	__u64 reserved[3];
};

/* States of a ring pair. From LS_PAIR_LIMIT on it is left out, for that reason. */
#define LS_PAIR_DOWN		0	/* the link is not up */
#define LS_PAIR_UP		1
#define LS_PAIR_LIMIT		2	/* the parameter ring_pairs */
#define LS_PAIR_NO_RING		3	/* the host interface has no ring pair left */
#define LS_PAIR_NO_HOPID	4	/* the cable has no HopID left to receive on */
#define LS_PAIR_REFUSED		5	/* the connection manager refused the path, with this error */
#define LS_PAIR_SILENT		6	/* its path was enabled and carried nothing */
#define LS_PAIR_PEER		7	/* the other host leaves it out */

struct ls_pair_info {
	__u32 state;		/* LS_PAIR_ */
	__s32 error;		/* LS_PAIR_REFUSED: negative errno */
	__u32 in_hopid;		/* 0: none */
	__u32 out_hopid;
	__u64 tx_frames;	/* data frames since the module was loaded */
	__u64 rx_frames;
	__u64 reserved[2];
};

struct ls_ioc_pairs {
	struct ls_pair_info pair[LS_PAIRS];
};

#define LS_REGION_READ		1	/* may be sent from */
#define LS_REGION_WRITE		2	/* may be received into */
#define LS_REGION_DMABUF	4	/* fd and offset instead of addr */

struct ls_ioc_register {
	__u64 addr;		/* of the first byte; a dma-buf: offset, page-aligned */
	__u64 length;
	__u32 flags;		/* LS_REGION_ */
	__s32 fd;		/* of a dma-buf, else 0 */
	__u32 region;		/* out: its id in this file */
	__u32 reserved;
};

struct ls_ioc_id {
	__u32 id;		/* a region or a channel */
	__u32 reserved;
};

struct ls_ioc_eventfd {
	__s32 fd;		/* -1: none any more */
	__u32 reserved;
};

#define LS_DOORBELL_POLL	1	/* spin on the rings while waiting */

struct ls_ioc_doorbell {
	__u32 flags;		/* LS_DOORBELL_ */
	__u32 min_complete;	/* in: completions to wait for */
	__u32 timeout_us;	/* in */
	__u32 submitted;	/* out: entries taken from the queue */
};

#define LS_IOC_MAGIC		'L'
#define LS_IOC_HELLO		_IOWR(LS_IOC_MAGIC, 0x40, struct ls_ioc_hello)
#define LS_IOC_INFO		_IOR(LS_IOC_MAGIC, 0x41, struct ls_ioc_info)
#define LS_IOC_REGISTER		_IOWR(LS_IOC_MAGIC, 0x42, struct ls_ioc_register)
#define LS_IOC_UNREGISTER	_IOW(LS_IOC_MAGIC, 0x43, struct ls_ioc_id)
#define LS_IOC_OPEN		_IOW(LS_IOC_MAGIC, 0x44, struct ls_ioc_id)
#define LS_IOC_CLOSE		_IOW(LS_IOC_MAGIC, 0x45, struct ls_ioc_id)
#define LS_IOC_DOORBELL		_IOWR(LS_IOC_MAGIC, 0x46, struct ls_ioc_doorbell)
#define LS_IOC_EVENTFD		_IOW(LS_IOC_MAGIC, 0x47, struct ls_ioc_eventfd)
#define LS_IOC_PAIRS		_IOR(LS_IOC_MAGIC, 0x48, struct ls_ioc_pairs)

/* First page of the map. An index counts entries forever, modulo 2^32. */
struct ls_queue {
	__u32 sq_tail;		/* written by the program */
	__u32 pad0[15];
	__u32 sq_head;		/* written by the driver */
	__u32 pad1[15];
	__u32 cq_tail;		/* written by the driver */
	__u32 pad2[15];
	__u32 cq_head;		/* written by the program */
	__u32 pad3[15];
	__u32 dead;		/* written by the driver: 1 when the link was lost */
	__u32 pad4[15];
	__u32 flags;		/* written by the driver: LS_QUEUE_ */
	__u32 pad5[15];
};

/* Entries wait for a doorbell: always set. */
#define LS_QUEUE_WAKE		1

#define LS_OP_SEND		1
#define LS_OP_RECV		2

struct ls_sqe {
	__u32 opcode;		/* LS_OP_ */
	__u32 channel;
	__u64 cookie;		/* comes back in the completion */
	__u32 region;
	__u32 reserved0;
	__u64 offset;		/* of the first byte in the region */
	__u64 length;
	__u64 reserved1[3];
};

struct ls_cqe {
	__u64 cookie;
	__u64 length;		/* of the message, also where a receive was too short for it */
	__s32 result;		/* 0 or a negative errno */
	__u32 channel;
	__u32 opcode;
	__u32 reserved;
};

#endif
