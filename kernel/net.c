// SPDX-License-Identifier: GPL-2.0
/*
 * The mode network: an Ethernet interface over all ring pairs, a queue on each.
 *
 * A packet is cut into frames that follow each other over one pair, each with a
 * header (struct ls_net_header); all but the last are full. It is copied once,
 * at the sender, into pages that stay mapped, so nothing of the stack's waits
 * for a ring. The receiver hands the pages themselves to the stack: the first
 * frame is the linear part of the skb, others are fragments. The two ends are
 * both of this driver, so checksums that are not computed yet and segments that
 * are not cut yet travel as virtio devices pass them on, and who has to send the
 * packet further computes and cuts. Frames have a checksum of the cable.
 *
 * A frame that is lost or damaged costs its packet. What the peer says of lengths,
 * places and offsets is checked before it is used.
 *
 * PROBE of the login, over each pair as often as it takes, is told from packets
 * by its mark.
 *
 * Locks: each queue's ls_net_queue.lock guards what it sends; what it receives is
 * its NAPI's own. A ring's interrupt stays masked until the NAPI has emptied it (and once
 * more where something came in between), that of a TX ring until somebody waits for space.
 * A lost one is found by ls_net_tick().
 */
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/if_vlan.h>
#include <linux/jhash.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/virtio_net.h>
#include <net/page_pool/helpers.h>

#include "linkspan.h"

#define LS_NET_MARK	2	/* SOF and EOF of frames of packets */
#define LS_NET_ENTRIES	256	/* of each ring; one of them stays free */
#define LS_NET_FRAMES	17	/* of a packet at most: a page for the skb, and its fragments */
#define LS_NET_COPY	256	/* bytes: up to here a packet is copied, and its page stays where it is */
/* A frame begins where its page does: none reaches over a border of 4 KiB. */
#define LS_NET_PAGE	(LS_FRAME_BYTES + SKB_DATA_ALIGN(sizeof(struct skb_shared_info)))
#define LS_NET_ORDER	get_order(LS_NET_PAGE)
#define LS_NET_TRUE	(PAGE_SIZE << LS_NET_ORDER)
#define LS_NET_TICK_MS	20
#define LS_NET_TICK_MOST_MS	500
#define LS_NET_PATIENCE	(10 * HZ)

/* Before the payload of each frame. */
struct ls_net_header {
	__le32 packet;		/* counts the packets of the pair */
	__le32 length;		/* of the packet */
	__le16 frame;		/* counts those of the packet */
	__le16 reserved;
	struct virtio_net_hdr offload;	/* of the packet, little-endian */
} __packed;

#define LS_NET_PAYLOAD	(LS_FRAME_BYTES - sizeof(struct ls_net_header))
#define LS_NET_LONGEST	(LS_NET_FRAMES * LS_NET_PAYLOAD)

/* An IP header behind it and that of Ethernet is aligned. */
static_assert(sizeof(struct ls_net_header) == 22);
static_assert(LS_NET_FRAMES - 1 <= MAX_SKB_FRAGS);
static_assert(LS_NET_LONGEST >= ETH_MAX_MTU + VLAN_ETH_HLEN);

struct ls_net_frame {
	struct ring_frame rf;
	struct list_head list;	/* free */
	struct page *page;
	dma_addr_t dma;
};

enum {
	LS_NET_TX_PACKETS, LS_NET_TX_BYTES, LS_NET_TX_FRAMES, LS_NET_TX_DROPPED, LS_NET_TX_STOPPED,
	LS_NET_RX_PACKETS, LS_NET_RX_BYTES, LS_NET_RX_FRAMES, LS_NET_RX_DROPPED, LS_NET_RX_LOST, LS_NET_RX_DAMAGED,
	LS_NET_RX_WRONG, LS_NET_RX_NO_MEMORY, LS_NET_COUNTERS,
};

static const char * const ls_net_names[LS_NET_COUNTERS] = {
	"tx_packets", "tx_bytes", "tx_frames", "tx_dropped", "tx_stopped",
	"rx_packets", "rx_bytes", "rx_frames", "rx_dropped", "rx_lost", "rx_damaged", "rx_wrong", "rx_no_memory",
};

struct ls_net_queue {
	struct ls_net *net;
	int index;
	struct napi_struct napi;
	u64 count[LS_NET_COUNTERS];

	/* The NAPI's own */
	struct ls_net_frame *rx;
	struct list_head rx_free;	/* without a page */
	struct page_pool *pool;
	struct sk_buff *skb;		/* a packet of which frames are missing */
	u32 packet, length, frame;	/* of it; which frame is next */
	struct virtio_net_hdr offload;

	/* under lock */
	spinlock_t lock;
	struct ls_net_frame *tx;
	struct list_head tx_free;
	u32 ntx_free;
	bool live;			/* packets are sent */
	u32 next;			/* number of the next packet */
	u64 sent;			/* frames that the ring is done with */
	u64 seen;			/* at the last tick that saw it move */
	unsigned long since;
};

struct ls_net {
	struct ls_link *lk;
	struct net_device *dev;
	bool polling;			/* NAPIs are on */
	struct delayed_work tick;
	unsigned int tick_ms;
	u64 moved;			/* at the last tick */
	struct ls_net_queue queue[LS_PAIRS];
};

static struct ls_net *ls_net(struct ls_link *lk)
{
	return netdev_priv(lk->net);
}

static struct ls_pair *ls_net_pair(struct ls_net_queue *q)
{
	return &q->net->lk->pair[q->index];
}

static struct netdev_queue *ls_net_txq(struct ls_net_queue *q)
{
	return netdev_get_tx_queue(q->net->dev, q->index);
}

/* Sending */

/* Frames that the ring is done with. lock is held. */
static bool ls_net_reclaim(struct ls_net_queue *q)
{
	struct ring_frame *rf;
	bool any = false;

	while ((rf = tb_ring_poll(ls_net_pair(q)->tx))) {
		struct ls_net_frame *f = container_of(rf, struct ls_net_frame, rf);

		list_add(&f->list, &q->tx_free);
		q->ntx_free++;
		q->sent++;
		any = true;
	}
	return any;
}

/* Until there is space, or what is sent from now on is told of. lock is held. */
static void ls_net_unmask_tx(struct ls_net_queue *q)
{
	do {
		ls_ring_unmask(ls_net_pair(q)->tx);
	} while (ls_net_reclaim(q) && q->ntx_free < LS_NET_FRAMES);
}

/* Its page holds the frame's bytes, of which there are so many. lock is held, and there is a free frame. */
static void ls_net_send(struct ls_net_queue *q, u32 len, u8 mark)
{
	struct ls_net_frame *f = list_first_entry(&q->tx_free, struct ls_net_frame, list);

	list_del_init(&f->list);
	q->ntx_free--;
	f->rf.buffer_phy = f->dma;
	f->rf.size = len & LS_FRAME_MASK;
	f->rf.sof = mark;
	f->rf.eof = mark;
	dma_sync_single_for_device(ls_dma_dev(q->net->lk), f->dma, len, DMA_TO_DEVICE);
	/* Fails only while the ring is being stopped: then all are let go. */
	tb_ring_tx(ls_net_pair(q)->tx, &f->rf);
}

static void *ls_net_next(struct ls_net_queue *q)
{
	return page_address(list_first_entry(&q->tx_free, struct ls_net_frame, list)->page);
}

/* There is no space for a longest packet: from now on space is told of. lock is held. */
static void ls_net_stop(struct ls_net_queue *q)
{
	netif_tx_stop_queue(ls_net_txq(q));
	q->count[LS_NET_TX_STOPPED]++;
	ls_net_unmask_tx(q);
	if (q->ntx_free >= LS_NET_FRAMES)
		netif_tx_start_queue(ls_net_txq(q));
}

static bool ls_net_put(struct ls_net_queue *q, struct sk_buff *skb)
{
	struct ls_net_header h = { .packet = cpu_to_le32(q->next), .length = cpu_to_le32(skb->len) };
	u32 at, len, frame = 0;

	if (skb->len > LS_NET_LONGEST || virtio_net_hdr_from_skb(skb, &h.offload, true, false, 0))
		return false;
	for (at = 0; at < skb->len; at += len) {
		u8 *to = ls_net_next(q);

		len = min_t(u32, skb->len - at, LS_NET_PAYLOAD);
		h.frame = cpu_to_le16(frame++);
		memcpy(to, &h, sizeof(h));
		if (skb_copy_bits(skb, at, to + sizeof(h), len))
			return false;
		ls_net_send(q, sizeof(h) + len, LS_NET_MARK);
	}
	q->next++;
	q->count[LS_NET_TX_PACKETS]++;
	q->count[LS_NET_TX_BYTES] += skb->len;
	q->count[LS_NET_TX_FRAMES] += frame;
	q->net->lk->pair_tx[ls_net_pair(q)->id] += frame;
	return true;
}

static netdev_tx_t ls_net_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct ls_net *net = netdev_priv(dev);
	struct ls_net_queue *q = &net->queue[skb_get_queue_mapping(skb)];

	spin_lock(&q->lock);
	if (q->live && q->ntx_free < LS_NET_ENTRIES / 2)
		ls_net_reclaim(q);
	if (q->live && q->ntx_free < LS_NET_FRAMES) {
		ls_net_stop(q);
		spin_unlock(&q->lock);
		return NETDEV_TX_BUSY;
	}
	if (!q->live || !ls_net_put(q, skb))
		q->count[LS_NET_TX_DROPPED]++;
	else if (q->ntx_free < LS_NET_FRAMES)
		ls_net_stop(q);
	spin_unlock(&q->lock);
	dev_kfree_skb_any(skb);
	return NETDEV_TX_OK;
}

/* Packets of a flow go over one pair, in order. */
static u16 ls_net_select(struct net_device *dev, struct sk_buff *skb, struct net_device *sb_dev)
{
	struct ls_net *net = netdev_priv(dev);

	return netdev_pick_tx(dev, skb, sb_dev) % max(READ_ONCE(net->lk->pairs), 1);
}

static void ls_net_say(struct ls_net_queue *q, u32 asks)
{
	struct ls_link *lk = q->net->lk;
	struct ls_header h = {
		.type = LS_PROBE,
		.id = cpu_to_le32(lk->own_session),
		.length = cpu_to_le32(atomic_read(&lk->heard) | asks),
		.from = cpu_to_le64(lk->their_session),
	};

	spin_lock_bh(&q->lock);
	if (q->ntx_free) {
		memcpy(ls_net_next(q), &h, sizeof(h));
		ls_net_send(q, sizeof(h), LS_SOF);
	}
	spin_unlock_bh(&q->lock);
}

/* Receiving */

static int ls_net_post(struct ls_net_queue *q, struct ls_net_frame *f)
{
	f->rf.buffer_phy = f->dma;
	f->rf.size = 0;
	return tb_ring_rx(ls_net_pair(q)->rx, &f->rf);
}

/* The frame stays where it is, for the next one. */
static void ls_net_repost(struct ls_net_queue *q, struct ls_net_frame *f)
{
	dma_sync_single_for_device(ls_dma_dev(q->net->lk), f->dma, LS_FRAME_BYTES, DMA_FROM_DEVICE);
	/* Fails only while the ring is being stopped. */
	ls_net_post(q, f);
}

/* Where there is no memory now, the next tick tries again. */
static int ls_net_refill(struct ls_net_queue *q, gfp_t gfp)
{
	struct device *dev = ls_dma_dev(q->net->lk);

	while (!list_empty(&q->rx_free)) {
		struct ls_net_frame *f = list_first_entry(&q->rx_free, struct ls_net_frame, list);
		struct page *page = page_pool_alloc_pages(q->pool, gfp | __GFP_NOWARN);

		if (!page)
			return -ENOMEM;
		f->dma = dma_map_page(dev, page, 0, LS_FRAME_BYTES, DMA_FROM_DEVICE);
		if (dma_mapping_error(dev, f->dma)) {
			page_pool_put_full_page(q->pool, page, false);
			return -ENOMEM;
		}
		f->page = page;
		list_del_init(&f->list);
		if (ls_net_post(q, f))
			return -ESHUTDOWN;
	}
	return 0;
}

/* The page is the stack's from here on. */
static struct page *ls_net_take(struct ls_net_queue *q, struct ls_net_frame *f)
{
	struct page *page = f->page;

	dma_unmap_page_attrs(ls_dma_dev(q->net->lk), f->dma, LS_FRAME_BYTES, DMA_FROM_DEVICE, DMA_ATTR_SKIP_CPU_SYNC);
	f->page = NULL;
	list_add_tail(&f->list, &q->rx_free);
	return page;
}

static void ls_net_forget(struct ls_net_queue *q)
{
	if (!q->skb)
		return;
	q->count[LS_NET_RX_LOST]++;
	dev_kfree_skb_any(q->skb);
	q->skb = NULL;
}

/* All of a packet is here. */
static void ls_net_deliver(struct ls_net_queue *q)
{
	struct net_device *dev = q->net->dev;
	struct sk_buff *skb = q->skb;

	q->skb = NULL;
	skb->dev = dev;
	/* Who cuts segments computes their checksums: there are none without the other. */
	if ((q->offload.gso_type != VIRTIO_NET_HDR_GSO_NONE && !(q->offload.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)) ||
	    virtio_net_hdr_to_skb(skb, &q->offload, true)) {
		q->count[LS_NET_RX_WRONG]++;
		dev_kfree_skb_any(skb);
		return;
	}
	if (!netif_running(dev)) {
		q->count[LS_NET_RX_DROPPED]++;
		dev_kfree_skb_any(skb);
		return;
	}
	q->count[LS_NET_RX_PACKETS]++;
	q->count[LS_NET_RX_BYTES] += skb->len;
	skb_record_rx_queue(skb, q->index);
	skb->protocol = eth_type_trans(skb, dev);
	napi_gro_receive(&q->napi, skb);
}

/* The first frame of a packet; true where its page was taken. */
static bool ls_net_begin(struct ls_net_queue *q, struct ls_net_frame *f, const void *from, u32 len)
{
	struct page *page;

	if (q->length <= LS_NET_COPY) {
		q->skb = napi_alloc_skb(&q->napi, len);
		if (q->skb)
			skb_put_data(q->skb, from, len);
		else
			q->count[LS_NET_RX_NO_MEMORY]++;
		return false;
	}
	page = ls_net_take(q, f);
	q->skb = napi_build_skb(page_address(page), LS_NET_TRUE);
	if (!q->skb) {
		q->count[LS_NET_RX_NO_MEMORY]++;
		page_pool_recycle_direct(q->pool, page);
		return true;
	}
	skb_mark_for_recycle(q->skb);
	skb_reserve(q->skb, sizeof(struct ls_net_header));
	skb_put(q->skb, len);
	return true;
}

static void ls_net_frame(struct ls_net_queue *q, struct ls_net_frame *f, u32 size)
{
	const u8 *from = page_address(f->page);
	u32 packet, length, frame, len;
	struct ls_net_header h;
	bool taken = true;

	memcpy(&h, from, sizeof(h));
	packet = le32_to_cpu(h.packet);
	length = le32_to_cpu(h.length);
	frame = le16_to_cpu(h.frame);
	if (size < sizeof(h) || length < ETH_HLEN || length > LS_NET_LONGEST || frame * LS_NET_PAYLOAD >= length ||
	    size - sizeof(h) != min_t(u32, LS_NET_PAYLOAD, length - frame * LS_NET_PAYLOAD)) {
		q->count[LS_NET_RX_WRONG]++;
		ls_net_forget(q);
		return ls_net_repost(q, f);
	}
	len = size - sizeof(h);
	if (!frame) {
		ls_net_forget(q);
		q->count[LS_NET_RX_LOST] += packet != q->packet + 1;
		q->packet = packet;
		q->length = length;
		q->frame = 0;
		q->offload = h.offload;
		taken = ls_net_begin(q, f, from + sizeof(h), len);
	} else if (q->skb && packet == q->packet && frame == q->frame && length == q->length) {
		skb_add_rx_frag(q->skb, frame - 1, ls_net_take(q, f), sizeof(h), len, LS_NET_TRUE);
	} else {
		/* Frames before it were lost, or there was no memory for them. */
		ls_net_forget(q);
		taken = false;
	}
	if (q->skb && frame == q->frame && ++q->frame * LS_NET_PAYLOAD >= length)
		ls_net_deliver(q);
	if (!taken)
		ls_net_repost(q, f);
}

static void ls_net_rx(struct ls_net_queue *q, struct ls_net_frame *f)
{
	struct ls_link *lk = q->net->lk;
	u32 size = f->rf.size ?: LS_FRAME_BYTES;
	const struct ls_header *h = page_address(f->page);

	dma_sync_single_for_cpu(ls_dma_dev(lk), f->dma, LS_FRAME_BYTES, DMA_FROM_DEVICE);
	if (f->rf.flags & LS_BAD) {
		q->count[LS_NET_RX_DAMAGED]++;
		ls_net_forget(q);
	} else if (f->rf.sof == LS_NET_MARK) {
		q->count[LS_NET_RX_FRAMES]++;
		lk->pair_rx[ls_net_pair(q)->id]++;
		return ls_net_frame(q, f, size);
	} else if (f->rf.sof != LS_SOF || size < sizeof(*h) || !ls_probed(lk, q->index, h)) {
		q->count[LS_NET_RX_WRONG]++;
	} else if (le32_to_cpu(h->length) & LS_PROBE_ASKS) {
		ls_net_say(q, 0);
	}
	ls_net_repost(q, f);
}

static int ls_net_take_some(struct ls_net_queue *q, int budget)
{
	struct ring_frame *rf;
	int done = 0;

	while (done < budget && (rf = tb_ring_poll(ls_net_pair(q)->rx))) {
		/* As in ls_take_frame(). */
		dma_rmb();
		ls_net_rx(q, container_of(rf, struct ls_net_frame, rf));
		done++;
	}
	ls_net_refill(q, GFP_ATOMIC);
	return done;
}

static int ls_net_poll(struct napi_struct *napi, int budget)
{
	struct ls_net_queue *q = container_of(napi, struct ls_net_queue, napi);
	int done;

	spin_lock(&q->lock);
	ls_net_reclaim(q);
	if (q->live && netif_tx_queue_stopped(ls_net_txq(q))) {
		if (q->ntx_free < LS_NET_FRAMES)
			ls_net_unmask_tx(q);
		if (q->ntx_free >= LS_NET_FRAMES)
			netif_tx_wake_queue(ls_net_txq(q));
	}
	spin_unlock(&q->lock);
	if (!budget)
		return 0;
	done = ls_net_take_some(q, budget);
	if (done < budget) {
		int more;

		/* What comes between the last look and the unmasking may tell nobody, and has set the status. */
		ls_ring_unmask(ls_net_pair(q)->rx);
		more = ls_net_take_some(q, budget - done);
		if (more)
			return budget;
		napi_complete_done(napi, done);
	}
	return done;
}

/* The client of the rings */

static void ls_net_free(struct ls_link *lk, struct ls_net_queue *q)
{
	int i;

	for (i = 0; q->tx && i < LS_NET_ENTRIES - 1; i++) {
		struct ls_net_frame *f = &q->tx[i];

		if (!f->page)
			continue;
		dma_unmap_page(ls_dma_dev(lk), f->dma, LS_FRAME_BYTES, DMA_TO_DEVICE);
		__free_page(f->page);
	}
	for (i = 0; q->rx && i < LS_NET_ENTRIES - 1; i++) {
		struct ls_net_frame *f = &q->rx[i];

		if (!f->page)
			continue;
		dma_unmap_page(ls_dma_dev(lk), f->dma, LS_FRAME_BYTES, DMA_FROM_DEVICE);
		page_pool_put_full_page(q->pool, f->page, false);
	}
	kvfree(q->tx);
	kvfree(q->rx);
	q->tx = NULL;
	q->rx = NULL;
	ls_net_forget(q);
	/* Packets that the stack still holds keep what they need of it. */
	if (q->pool)
		page_pool_destroy(q->pool);
	q->pool = NULL;
}

static int ls_net_make(struct ls_link *lk, struct ls_net_queue *q)
{
	struct page_pool_params params = {
		.order = LS_NET_ORDER,
		.pool_size = LS_NET_ENTRIES,
		.nid = dev_to_node(ls_dma_dev(lk)),
		.napi = &q->napi,
	};
	struct page_pool *pool;
	int i;

	INIT_LIST_HEAD(&q->tx_free);
	INIT_LIST_HEAD(&q->rx_free);
	q->ntx_free = 0;
	q->next = 0;
	q->sent = 0;
	q->packet = U32_MAX;
	pool = page_pool_create(&params);
	if (IS_ERR(pool))
		return PTR_ERR(pool);
	q->pool = pool;
	q->tx = kvcalloc(LS_NET_ENTRIES - 1, sizeof(*q->tx), GFP_KERNEL);
	q->rx = kvcalloc(LS_NET_ENTRIES - 1, sizeof(*q->rx), GFP_KERNEL);
	if (!q->tx || !q->rx)
		return -ENOMEM;
	for (i = 0; i < LS_NET_ENTRIES - 1; i++) {
		struct ls_net_frame *f = &q->tx[i];
		struct page *page = alloc_page(GFP_KERNEL);

		if (!page)
			return -ENOMEM;
		f->dma = dma_map_page(ls_dma_dev(lk), page, 0, LS_FRAME_BYTES, DMA_TO_DEVICE);
		if (dma_mapping_error(ls_dma_dev(lk), f->dma)) {
			__free_page(page);
			return -ENOMEM;
		}
		f->page = page;
		INIT_LIST_HEAD(&f->rf.list);
		list_add_tail(&f->list, &q->tx_free);
		q->ntx_free++;
		INIT_LIST_HEAD(&q->rx[i].rf.list);
		list_add_tail(&q->rx[i].list, &q->rx_free);
	}
	return 0;
}

static int ls_net_prepare(struct ls_link *lk)
{
	struct ls_net *net = ls_net(lk);
	int i, ret;

	for (i = 0; i < lk->pairs; i++) {
		ret = ls_pair_alloc(lk, i, LS_NET_ENTRIES);
		if (ret)
			return ls_cannot(lk, i, LS_PAIR_NO_RING, ret);
	}
	for (i = 0; i < lk->pairs; i++) {
		ret = ls_net_make(lk, &net->queue[i]);
		if (ret)
			return ret;
	}
	return 0;
}

static int ls_net_start(struct ls_link *lk)
{
	struct ls_net *net = ls_net(lk);
	int i, ret = 0;

	/* The NAPIs are not on yet: what has come by then is found by the first look. */
	for (i = 0; i < lk->pairs && !ret; i++)
		ret = ls_net_refill(&net->queue[i], GFP_KERNEL);
	for (i = 0; i < lk->pairs; i++)
		napi_enable(&net->queue[i].napi);
	net->polling = true;
	return ret;
}

static void ls_net_event(struct ls_link *lk, int ring)
{
	napi_schedule(&ls_net(lk)->queue[ring / 2].napi);
}

static bool ls_net_look(struct ls_link *lk)
{
	struct ls_net *net = ls_net(lk);
	int i;

	local_bh_disable();
	for (i = 0; i < lk->pairs; i++)
		napi_schedule(&net->queue[i].napi);
	local_bh_enable();
	return false;
}

static void ls_net_probe(struct ls_link *lk, bool first)
{
	int i;

	for (i = 0; i < lk->pairs; i++)
		ls_net_say(&ls_net(lk)->queue[i], LS_PROBE_ASKS);
}

static void ls_net_up(struct ls_link *lk)
{
	struct ls_net *net = ls_net(lk);
	int i;

	for (i = 0; i < lk->pairs; i++) {
		struct ls_net_queue *q = &net->queue[i];

		spin_lock_bh(&q->lock);
		q->live = true;
		q->seen = q->sent;
		q->since = jiffies;
		spin_unlock_bh(&q->lock);
	}
	netif_carrier_on(net->dev);
	netif_tx_wake_all_queues(net->dev);
	net->tick_ms = LS_NET_TICK_MS;
	mod_delayed_work(ls_io_wq, &net->tick, msecs_to_jiffies(net->tick_ms));
}

static bool ls_net_used(struct ls_link *lk)
{
	return netif_running(lk->net);
}

static void ls_net_quiet(struct ls_link *lk)
{
	struct ls_net *net = ls_net(lk);
	int i;

	netif_carrier_off(net->dev);
	for (i = 0; i < lk->pairs; i++) {
		spin_lock_bh(&net->queue[i].lock);
		net->queue[i].live = false;
		spin_unlock_bh(&net->queue[i].lock);
	}
	cancel_delayed_work_sync(&net->tick);
}

static void ls_net_idle(struct ls_link *lk)
{
	struct ls_net *net = ls_net(lk);
	int i;

	for (i = 0; net->polling && i < lk->pairs; i++)
		napi_disable(&net->queue[i].napi);
	net->polling = false;
}

static void ls_net_release(struct ls_link *lk)
{
	int i;

	for (i = 0; i < LS_PAIRS; i++)
		ls_net_free(lk, &ls_net(lk)->queue[i]);
}

const struct ls_client ls_network = {
	.name = "network",
	.prepare = ls_net_prepare,
	.start = ls_net_start,
	.event = ls_net_event,
	.look = ls_net_look,
	.probe = ls_net_probe,
	.up = ls_net_up,
	.used = ls_net_used,
	.quiet = ls_net_quiet,
	.idle = ls_net_idle,
	.release = ls_net_release,
};

/* A peer whose rings stand full takes nothing, and the stack would wait for it. */
static bool ls_net_stuck(struct ls_net_queue *q)
{
	bool stuck;

	spin_lock_bh(&q->lock);
	if (q->sent != q->seen || q->ntx_free == LS_NET_ENTRIES - 1) {
		q->seen = q->sent;
		q->since = jiffies;
	}
	stuck = time_after(jiffies, q->since + LS_NET_PATIENCE);
	spin_unlock_bh(&q->lock);
	return stuck;
}

/* Lost interrupts, memory that was short, and a peer that takes nothing. */
static void ls_net_tick(struct work_struct *work)
{
	struct ls_net *net = container_of(work, struct ls_net, tick.work);
	struct ls_link *lk = net->lk;
	u64 moved = 0;
	int i;

	ls_net_look(lk);
	for (i = 0; i < lk->pairs; i++) {
		struct ls_net_queue *q = &net->queue[i];

		moved += READ_ONCE(q->count[LS_NET_TX_FRAMES]) + READ_ONCE(q->count[LS_NET_RX_FRAMES]);
		if (ls_net_stuck(q))
			return ls_restart(lk, "the peer takes no packets");
	}
	net->tick_ms = moved != net->moved ? LS_NET_TICK_MS : min(2 * net->tick_ms, LS_NET_TICK_MOST_MS);
	net->moved = moved;
	mod_delayed_work(ls_io_wq, &net->tick, msecs_to_jiffies(net->tick_ms));
}

/* The interface */

static int ls_net_open(struct net_device *dev)
{
	netif_tx_start_all_queues(dev);
	return 0;
}

static int ls_net_close(struct net_device *dev)
{
	netif_tx_stop_all_queues(dev);
	return 0;
}

static u64 ls_net_sum(struct ls_net *net, int counter)
{
	u64 sum = 0;
	int i;

	for (i = 0; i < LS_PAIRS; i++)
		sum += READ_ONCE(net->queue[i].count[counter]);
	return sum;
}

static void ls_net_stats(struct net_device *dev, struct rtnl_link_stats64 *s)
{
	struct ls_net *net = netdev_priv(dev);

	s->tx_packets = ls_net_sum(net, LS_NET_TX_PACKETS);
	s->tx_bytes = ls_net_sum(net, LS_NET_TX_BYTES);
	s->tx_dropped = ls_net_sum(net, LS_NET_TX_DROPPED);
	s->rx_packets = ls_net_sum(net, LS_NET_RX_PACKETS);
	s->rx_bytes = ls_net_sum(net, LS_NET_RX_BYTES);
	s->rx_dropped = ls_net_sum(net, LS_NET_RX_DROPPED) + ls_net_sum(net, LS_NET_RX_NO_MEMORY);
	s->rx_crc_errors = ls_net_sum(net, LS_NET_RX_DAMAGED);
	s->rx_missed_errors = ls_net_sum(net, LS_NET_RX_LOST);
	s->rx_frame_errors = ls_net_sum(net, LS_NET_RX_WRONG);
	s->rx_errors = s->rx_crc_errors + s->rx_missed_errors + s->rx_frame_errors;
}

static const struct net_device_ops ls_net_ops = {
	.ndo_open = ls_net_open,
	.ndo_stop = ls_net_close,
	.ndo_start_xmit = ls_net_xmit,
	.ndo_select_queue = ls_net_select,
	.ndo_get_stats64 = ls_net_stats,
	.ndo_set_mac_address = eth_mac_addr,
	.ndo_validate_addr = eth_validate_addr,
};

static int ls_net_settings(struct net_device *dev, struct ethtool_link_ksettings *to)
{
	const struct tb_xdomain *xd = ((struct ls_net *)netdev_priv(dev))->lk->xd;

	/* Asymmetric links have one lane the one way and three the other; two is what both ways have. */
	to->base.speed = netif_carrier_ok(dev) ? xd->link_speed * (xd->link_width == 1 ? 1 : 2) * 1000 : SPEED_UNKNOWN;
	to->base.duplex = DUPLEX_FULL;
	to->base.port = PORT_OTHER;
	to->base.autoneg = AUTONEG_DISABLE;
	return 0;
}

static int ls_net_strings(struct net_device *dev, int set)
{
	return set == ETH_SS_STATS ? LS_PAIRS * LS_NET_COUNTERS : -EOPNOTSUPP;
}

static void ls_net_string(struct net_device *dev, u32 set, u8 *to)
{
	int i, k;

	for (i = 0; i < LS_PAIRS; i++) {
		for (k = 0; k < LS_NET_COUNTERS; k++)
			ethtool_sprintf(&to, "pair%d_%s", i, ls_net_names[k]);
	}
}

static void ls_net_counters(struct net_device *dev, struct ethtool_stats *stats, u64 *to)
{
	struct ls_net *net = netdev_priv(dev);
	int i, k;

	for (i = 0; i < LS_PAIRS; i++) {
		for (k = 0; k < LS_NET_COUNTERS; k++)
			*to++ = READ_ONCE(net->queue[i].count[k]);
	}
}

static void ls_net_info(struct net_device *dev, struct ethtool_drvinfo *info)
{
	struct ls_net *net = netdev_priv(dev);

	strscpy(info->driver, KBUILD_MODNAME, sizeof(info->driver));
	strscpy(info->bus_info, dev_name(&net->lk->dev), sizeof(info->bus_info));
}

static const struct ethtool_ops ls_net_ethtool = {
	.get_link = ethtool_op_get_link,
	.get_drvinfo = ls_net_info,
	.get_link_ksettings = ls_net_settings,
	.get_sset_count = ls_net_strings,
	.get_strings = ls_net_string,
	.get_ethtool_stats = ls_net_counters,
};

/* The same for a plug at each start; another one than that of thunderbolt_net beside it. */
static void ls_net_address(struct ls_link *lk, struct net_device *dev)
{
	u32 key[] = { upper_32_bits(lk->xd->route), lower_32_bits(lk->xd->route), 0, 0, 0, 0 };
	u8 address[ETH_ALEN] = { 0x02, 'l' };
	u32 hash;

	static_assert(sizeof(key) == 8 + sizeof(uuid_t));
	memcpy(key + 2, lk->xd->local_uuid, sizeof(uuid_t));
	hash = jhash2(key, ARRAY_SIZE(key), 0);
	memcpy(address + 2, &hash, sizeof(hash));
	eth_hw_addr_set(dev, address);
}

/* mode_lock is held, or nobody else knows the link. */
int ls_net_add(struct ls_link *lk)
{
	struct net_device *dev;
	struct ls_net *net;
	int i, ret;

	if (lk->net)
		return 0;
	dev = alloc_netdev_mqs(sizeof(*net), dev_name(&lk->dev), NET_NAME_ENUM, ether_setup, LS_PAIRS, LS_PAIRS);
	if (!dev)
		return -ENOMEM;
	SET_NETDEV_DEV(dev, lk->dev.parent);
	dev->netdev_ops = &ls_net_ops;
	dev->ethtool_ops = &ls_net_ethtool;
	dev->hw_features = NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_TSO | NETIF_F_TSO6 | NETIF_F_TSO_ECN;
	dev->features = dev->hw_features | NETIF_F_HIGHDMA;
	/* It sends from where it likes, also where a queue's lock is held. */
	dev->priv_flags |= IFF_DISABLE_NETPOLL;
	dev->vlan_features = dev->features;
	/* One frame carries it. */
	dev->mtu = LS_NET_PAYLOAD - VLAN_ETH_HLEN;
	dev->min_mtu = ETH_MIN_MTU;
	dev->max_mtu = ETH_MAX_MTU;
	ls_net_address(lk, dev);
	net = netdev_priv(dev);
	net->lk = lk;
	net->dev = dev;
	INIT_DELAYED_WORK(&net->tick, ls_net_tick);
	for (i = 0; i < LS_PAIRS; i++) {
		struct ls_net_queue *q = &net->queue[i];

		q->net = net;
		q->index = i;
		spin_lock_init(&q->lock);
		netif_napi_add(dev, &q->napi, ls_net_poll);
	}
	netif_carrier_off(dev);
	ret = register_netdev(dev);
	if (ret)
		free_netdev(dev);
	else
		lk->net = dev;
	return ret;
}

/* Its rings have gone. */
void ls_net_remove(struct ls_link *lk)
{
	if (!lk->net)
		return;
	unregister_netdev(lk->net);
	free_netdev(lk->net);
	lk->net = NULL;
}
