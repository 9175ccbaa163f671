// SPDX-License-Identifier: GPL-2.0
/*
 * The device of a link: what a program may ask for.
 *
 * An open file belongs to one coming-up of the link. When the link goes down
 * the file is dead: regions, channels and doorbells fail with ENODEV, poll() says
 * HUP, its memory is let go while it is still open; opening again reaches the link
 * when it is back. A child of fork() that has the file cannot use it, nor keep it.
 *
 * Locks: ls_file.setup orders HELLOs of one file;
 * ls_link.io guards the rest. User memory is touched under neither.
 * ls_file.wait and .event are woken under io.
 */
#include <linux/fs.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/nospec.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "linkspan.h"

static_assert(sizeof(struct ls_queue) == 384);
static_assert(sizeof(struct ls_sqe) == 64);
static_assert(sizeof(struct ls_cqe) == 32);

static void ls_queue_free(struct ls_queue *q, struct page **pages, unsigned long n)
{
	vunmap(q);
	while (n--)
		__free_page(pages[n]);
	kvfree(pages);
}

/* Charged to the program's memory cgroup, which vmalloc_user() does not do. */
static struct ls_queue *ls_queue_make(struct page ***to, unsigned long n)
{
	struct page **pages = kvcalloc(n, sizeof(*pages), GFP_KERNEL_ACCOUNT);
	struct ls_queue *q = NULL;
	unsigned long i;

	for (i = 0; pages && i < n; i++) {
		pages[i] = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
		if (!pages[i])
			break;
	}
	if (pages && i == n)
		q = vmap(pages, n, VM_MAP, PAGE_KERNEL);
	if (!q)
		ls_queue_free(NULL, pages, i);
	else
		*to = pages;
	return q;
}

void ls_file_free(struct kref *kref)
{
	struct ls_file *f = container_of(kref, struct ls_file, kref);

	if (f->event)
		eventfd_ctx_put(f->event);
	ls_queue_free(f->q, f->pages, f->map_bytes >> PAGE_SHIFT);
	kvfree(f->ops);
	xa_destroy(&f->regions);
	kfree(f);
}

void ls_file_wake(struct ls_file *f)
{
	/* Also the one that waits in close(), for a kill only. */
	if (wq_has_sleeper(&f->wait))
		wake_up(&f->wait);
	if (f->event)
		eventfd_signal(f->event);
}

/* It can do nothing more. io is held. */
void ls_file_dead(struct ls_file *f)
{
	/* In this order: who hears of it from poll() finds it in the queues. */
	WRITE_ONCE(f->q->dead, 1);
	smp_store_release(&f->dead, true); /* pairs with ls_poll_file() */
	list_del_init(&f->list);
}

static int ls_open(struct inode *inode, struct file *file)
{
	struct ls_link *lk = container_of(inode->i_cdev, struct ls_link, cdev);
	struct ls_file *f = kzalloc(sizeof(*f), GFP_KERNEL_ACCOUNT);

	if (!f)
		return -ENOMEM;
	kref_init(&f->kref);
	INIT_LIST_HEAD(&f->list);
	INIT_LIST_HEAD(&f->free_ops);
	mutex_init(&f->setup);
	init_waitqueue_head(&f->wait);
	xa_init_flags(&f->regions, XA_FLAGS_ALLOC);
	f->lk = lk;
	get_device(&lk->dev);
	file->private_data = f;
	return nonseekable_open(inode, file);
}

static void ls_end(struct ls_file *f)
{
	struct ls_link *lk = f->lk;
	LIST_HEAD(reap);

	mutex_lock(&lk->io);
	f->closed = true;
	if (f->ready && !f->dead) {
		ls_file_dead(f);
		ls_chan_close_all(f);
		ls_regions_drop(f, &reap);
		/* Others may wait for it: a thread in a doorbell, a child in poll(). */
		ls_file_wake(f);
	}
	mutex_unlock(&lk->io);
	ls_regions_free(&reap);
	/*
	 * What was granted goes on in pinned pages. A program that lives on may
	 * use them again after this: it waits for the end of that, which the
	 * watch sees to. One that ends has no use for them, and where a thread of
	 * the kernel closes for it, others wait for that thread.
	 */
	if (!(current->flags & (PF_EXITING | PF_KTHREAD)))
		wait_event_state(f->wait, !READ_ONCE(f->live), (TASK_KILLABLE | TASK_FREEZABLE));
}

/*
 * The process that said HELLO closes it: it ends, though a child of fork() may
 * have it for long. The memory of that process is its own again after this.
 */
static int ls_flush(struct file *file, fl_owner_t id)
{
	struct ls_file *f = file->private_data;

	if (smp_load_acquire(&f->ready) && f->owner == id) /* pairs with ls_hello() */
		ls_end(f);
	return 0;
}

static int ls_close(struct inode *inode, struct file *file)
{
	struct ls_file *f = file->private_data;
	struct ls_link *lk = f->lk;

	ls_end(f);
	kref_put(&f->kref, ls_file_free);
	put_device(&lk->dev);
	return 0;
}

static bool ls_settled(struct ls_link *lk)
{
	u32 state = READ_ONCE(lk->state);

	/* It is still called up for a while when it goes down. */
	return state == LS_STATE_GONE || (state == LS_STATE_UP && !test_bit(LS_WANT_DOWN, &lk->flags) &&
					  !test_bit(LS_GONE, &lk->flags));
}

static int ls_hello(struct ls_file *f, struct ls_ioc_hello *h)
{
	struct ls_link *lk = f->lk;
	size_t sq_bytes, cq_bytes;
	struct page **pages = NULL;
	struct ls_queue *q;
	struct ls_op *ops;
	unsigned long n;
	long left;
	int ret;
	u32 i;

	if (h->version != LS_ABI_VERSION) {
		h->version = LS_ABI_VERSION;
		return -EPROTO;
	}
	if (h->reserved || h->flags & ~LS_HELLO_POLL || h->idle_us > LS_POLL_IDLE_MAX_US ||
	    !is_power_of_2(h->sq_entries) || h->sq_entries < LS_ENTRIES_MIN || h->sq_entries > LS_ENTRIES_MAX ||
	    !is_power_of_2(h->cq_entries) || h->cq_entries < LS_ENTRIES_MIN || h->cq_entries > LS_ENTRIES_MAX)
		return -EINVAL;
	if (f->ready)
		return -EALREADY;
	sq_bytes = PAGE_ALIGN(h->sq_entries * sizeof(struct ls_sqe));
	cq_bytes = PAGE_ALIGN(h->cq_entries * sizeof(struct ls_cqe));
	n = 1 + (sq_bytes >> PAGE_SHIFT) + (cq_bytes >> PAGE_SHIFT);
	q = ls_queue_make(&pages, n);
	ops = kvcalloc(h->cq_entries, sizeof(*ops), GFP_KERNEL_ACCOUNT);
	ret = -ENOMEM;
	if (!q || !ops)
		goto err;
	/* Nobody takes entries without a doorbell. */
	q->flags = LS_QUEUE_WAKE;
	h->map_bytes = PAGE_SIZE + sq_bytes + cq_bytes;
	h->sq_offset = PAGE_SIZE;
	h->cq_offset = PAGE_SIZE + sq_bytes;
	h->channels = LS_CHANNELS;
	h->eager_bytes = LS_EAGER_BYTES;
	h->message_bytes = LS_MESSAGE_BYTES;

	left = msecs_to_jiffies(h->timeout_ms);
	for (;;) {
		bool down;

		left = wait_event_interruptible_timeout(lk->wait, ls_settled(lk), left);
		ret = left;
		if (left < 0)
			goto err;
		mutex_lock(&lk->io);
		if (lk->running && lk->sending)
			break;
		down = lk->client != &ls_network;
		mutex_unlock(&lk->io);
		ret = -ENODEV;
		if (READ_ONCE(lk->state) == LS_STATE_GONE)
			goto err;
		ret = -ENOTCONN;
		/* Between two links there is a next one, but none for programs in the mode network. */
		if (!down || !left)
			goto err;
	}
	f->q = q;
	f->pages = pages;
	f->map_bytes = h->map_bytes;
	f->sq = (void *)q + h->sq_offset;
	f->cq = (void *)q + h->cq_offset;
	f->sq_entries = h->sq_entries;
	f->cq_entries = h->cq_entries;
	f->ops = ops;
	for (i = 0; i < h->cq_entries; i++) {
		ops[i].file = f;
		list_add_tail(&ops[i].list, &f->free_ops);
	}
	f->owner = current->files;
	/* What it made is visible to readers of this. */
	smp_store_release(&f->ready, true);
	list_add_tail(&f->list, &lk->files);
	mutex_unlock(&lk->io);
	return 0;
err:
	if (q)
		ls_queue_free(q, pages, n);
	kvfree(ops);
	return ret;
}

static void ls_info(struct ls_link *lk, struct ls_ioc_info *info)
{
	int i;

	memset(info, 0, sizeof(*info));
	memcpy(info->local_uuid, lk->xd->local_uuid, 16);
	memcpy(info->peer_uuid, lk->xd->remote_uuid, 16);
	info->link_speed = lk->xd->link_speed;
	info->link_width = lk->xd->link_width;
	mutex_lock(&lk->login);
	info->state = ls_shown_state(lk);
	for (i = 0; i < 2; i++) {
		info->in_hopid[i] = lk->offer[i].in_hop;
		info->out_hopid[i] = lk->offer[i].out_hop;
	}
	/*
	 * Not io within login: rings are allocated under io, and the thread that
	 * receives the domain's control packets waits for login.
	 */
	mutex_unlock(&lk->login);
	mutex_lock(&lk->io);
	info->epoch = lk->epoch;
	info->ring_size = lk->ring_size;
	info->ring_pairs = lk->running ? lk->pairs : 0;
	info->tx_frames = lk->tx_frames;
	info->rx_frames = lk->rx_frames;
	info->tx_bytes = lk->tx_bytes;
	info->rx_bytes = lk->rx_bytes;
	info->copied_bytes = lk->copied;
	info->control_frames = lk->control;
	info->doorbells = lk->doorbells;
	info->restarts = lk->restarts;
	mutex_unlock(&lk->io);
}

static void ls_pairs(struct ls_link *lk, struct ls_ioc_pairs *pairs)
{
	int i;

	memset(pairs, 0, sizeof(*pairs));
	mutex_lock(&lk->login);
	for (i = 0; i < LS_PAIRS; i++) {
		const struct ls_offer *o = &lk->offer[i];
		struct ls_pair_info *info = &pairs->pair[i];

		info->state = o->why ?: lk->state == LS_STATE_UP ? LS_PAIR_UP : LS_PAIR_DOWN;
		info->error = o->why == LS_PAIR_REFUSED ? o->error : 0;
		info->in_hopid = o->in_hop;
		info->out_hopid = o->out_hop;
	}
	mutex_unlock(&lk->login);
	mutex_lock(&lk->io);
	for (i = 0; i < LS_PAIRS; i++) {
		pairs->pair[i].tx_frames = lk->pair_tx[i];
		pairs->pair[i].rx_frames = lk->pair_rx[i];
	}
	mutex_unlock(&lk->io);
}

/* Completions that the program has not taken; more than the queue holds is a lie. */
static u32 ls_unread(struct ls_file *f)
{
	return READ_ONCE(f->cq_tail) - READ_ONCE(f->q->cq_head);
}

/* Entries that can be taken: there is space for their completions. Negative for indices that cannot be. io is held. */
static int ls_waiting(struct ls_file *f)
{
	/* The index before the entries that it covers. */
	u32 n = smp_load_acquire(&f->q->sq_tail) - f->sq_head;
	u32 unread = ls_unread(f);

	if (n > f->sq_entries || unread > f->cq_entries)
		return -EINVAL;
	return f->live + unread >= f->cq_entries ? 0 : min(n, f->cq_entries - f->live - unread);
}

/* The program may write it at any time: what is checked is what is used. */
static void ls_read_entry(const struct ls_sqe *from, struct ls_sqe *to)
{
	const u64 *word = (const u64 *)from;
	u64 *copy = (u64 *)to;
	size_t i;

	for (i = 0; i < sizeof(*from) / sizeof(*word); i++)
		copy[i] = READ_ONCE(word[i]);
}

/* Takes entries from the queue. io is held. */
static int ls_submit(struct ls_file *f, u32 *taken)
{
	int n = f->dead ? -ENODEV : ls_waiting(f);

	if (n < 0)
		return n;
	for (*taken = n; n; n--) {
		struct ls_sqe sqe;

		ls_read_entry(&f->sq[f->sq_head & (f->sq_entries - 1)], &sqe);
		f->sq_head++;
		ls_take(f, &sqe);
	}
	/* The program may reuse an entry once the index has passed it. */
	smp_store_release(&f->q->sq_head, f->sq_head);
	ls_pump(f->lk);
	return 0;
}

static bool ls_enough(struct ls_file *f, u32 want)
{
	return READ_ONCE(f->dead) || ls_unread(f) >= want;
}

static int ls_spin(struct ls_file *f, u32 want, u32 us)
{
	ktime_t end = ktime_add_us(ktime_get(), us);

	while (!ls_enough(f, want)) {
		if (mutex_trylock(&f->lk->io)) {
			/* The rings may be those of the next link by now, and of the network. */
			if (!f->dead)
				ls_poll(f->lk);
			mutex_unlock(&f->lk->io);
		}
		if (signal_pending(current))
			return -EINTR;
		if (ktime_after(ktime_get(), end))
			break;
		cond_resched();
		cpu_relax();
	}
	return 0;
}

static int ls_doorbell(struct ls_file *f, struct ls_ioc_doorbell *d)
{
	u32 want = min(d->min_complete, f->cq_entries);
	u32 taken = 0;
	long ret;

	if (d->flags & ~LS_DOORBELL_POLL)
		return -EINVAL;
	mutex_lock(&f->lk->io);
	f->lk->doorbells++;
	ret = ls_submit(f, &taken);
	mutex_unlock(&f->lk->io);
	d->submitted = taken;
	if (ret || !want)
		return ret;
	if (d->flags & LS_DOORBELL_POLL) {
		ret = ls_spin(f, want, d->timeout_us);
	} else {
		ret = wait_event_interruptible_hrtimeout(f->wait, ls_enough(f, want),
							 ns_to_ktime((u64)d->timeout_us * NSEC_PER_USEC));
		if (ret == -ETIME)
			ret = 0;
	}
	/* What was submitted was: a signal does not undo it, and the program is not to submit it again. */
	return taken ? 0 : ret;
}

static int ls_set_event(struct ls_file *f, const struct ls_ioc_eventfd *arg)
{
	struct eventfd_ctx *ctx = NULL;

	if (arg->reserved || arg->fd < -1)
		return -EINVAL;
	if (arg->fd >= 0) {
		ctx = eventfd_ctx_fdget(arg->fd);
		if (IS_ERR(ctx))
			return PTR_ERR(ctx);
	}
	mutex_lock(&f->lk->io);
	swap(f->event, ctx);
	mutex_unlock(&f->lk->io);
	if (ctx)
		eventfd_ctx_put(ctx);
	return 0;
}

static int ls_channel(struct ls_file *f, const struct ls_ioc_id *arg, bool open)
{
	struct ls_link *lk = f->lk;
	struct ls_chan *c;
	u8 *buf = NULL;
	int ret;

	if (arg->reserved || arg->id >= LS_CHANNELS)
		return -EINVAL;
	c = &lk->chans[array_index_nospec(arg->id, LS_CHANNELS)];
	if (open) {
		/* One that was closed a moment ago is about to be free. */
		wait_event_interruptible_timeout(lk->wait, READ_ONCE(c->local) != LS_CLOSING, 10 * HZ);
		/* Not under io: who waits for memory holds up no other program. */
		buf = kvmalloc_array(LS_CREDITS, LS_FRAME_BYTES, GFP_KERNEL_ACCOUNT);
		if (!buf)
			return -ENOMEM;
	}
	mutex_lock(&lk->io);
	if (f->dead)
		ret = -ENODEV;
	else
		ret = open ? ls_chan_open(f, arg->id, buf) : ls_chan_close(f, arg->id);
	mutex_unlock(&lk->io);
	if (ret)
		kvfree(buf);
	return ret;
}

static long ls_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct ls_file *f = file->private_data;
	void __user *user = (void __user *)arg;
	union {
		struct ls_ioc_hello hello;
		struct ls_ioc_info info;
		struct ls_ioc_pairs pairs;
		struct ls_ioc_register reg;
		struct ls_ioc_id id;
		struct ls_ioc_eventfd event;
		struct ls_ioc_doorbell doorbell;
	} u;
	long ret;

	if (_IOC_TYPE(cmd) != LS_IOC_MAGIC || _IOC_SIZE(cmd) > sizeof(u))
		return -ENOTTY;
	if (_IOC_DIR(cmd) & _IOC_WRITE && copy_from_user(&u, user, _IOC_SIZE(cmd)))
		return -EFAULT;
	if (cmd == LS_IOC_HELLO) {
		if (mutex_lock_interruptible(&f->setup))
			return -EINTR;
		ret = ls_hello(f, &u.hello);
		mutex_unlock(&f->setup);
	} else if (cmd == LS_IOC_INFO) {
		ls_info(f->lk, &u.info);
		ret = 0;
	} else if (cmd == LS_IOC_PAIRS) {
		ls_pairs(f->lk, &u.pairs);
		ret = 0;
	} else if (!smp_load_acquire(&f->ready)) { /* pairs with ls_hello() */
		ret = -ENODATA;
	} else if (f->owner != current->files) {
		ret = -ENODEV;
	} else {
		switch (cmd) {
		case LS_IOC_REGISTER:
			ret = ls_region_add(f, &u.reg);
			break;
		case LS_IOC_UNREGISTER:
			ret = u.id.reserved ? -EINVAL : ls_region_remove(f, u.id.id);
			break;
		case LS_IOC_OPEN:
		case LS_IOC_CLOSE:
			ret = ls_channel(f, &u.id, cmd == LS_IOC_OPEN);
			break;
		case LS_IOC_DOORBELL:
			ret = ls_doorbell(f, &u.doorbell);
			break;
		case LS_IOC_EVENTFD:
			ret = ls_set_event(f, &u.event);
			break;
		default:
			return -ENOTTY;
		}
	}
	/* The driver's version is told with the refusal of another. */
	if ((!ret || ret == -EPROTO) && _IOC_DIR(cmd) & _IOC_READ && copy_to_user(user, &u, _IOC_SIZE(cmd)))
		ret = -EFAULT;
	return ret;
}

static __poll_t ls_poll_file(struct file *file, poll_table *wait)
{
	struct ls_file *f = file->private_data;
	__poll_t mask = 0;

	/* Also before HELLO: who asks then waits for what comes after it. */
	poll_wait(file, &f->wait, wait);
	if (!smp_load_acquire(&f->ready)) /* pairs with ls_hello() */
		return 0;
	if (smp_load_acquire(&f->dead)) /* pairs with ls_flow_reset() */
		mask |= EPOLLHUP | EPOLLERR;
	if (ls_unread(f))
		mask |= EPOLLIN | EPOLLRDNORM;
	return mask;
}

static int ls_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct ls_file *f = file->private_data;

	if (!smp_load_acquire(&f->ready)) /* pairs with ls_hello() */
		return -ENODATA;
	if (f->owner != current->files)
		return -ENODEV;
	if (vma->vm_pgoff || vma->vm_end - vma->vm_start != f->map_bytes || !(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	vm_flags_set(vma, VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY);
	return vm_map_pages_zero(vma, f->pages, f->map_bytes >> PAGE_SHIFT);
}

const struct file_operations ls_fops = {
	.owner = THIS_MODULE,
	.open = ls_open,
	.flush = ls_flush,
	.release = ls_close,
	.unlocked_ioctl = ls_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.poll = ls_poll_file,
	.mmap = ls_mmap,
};
