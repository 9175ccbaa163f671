// SPDX-License-Identifier: GPL-2.0
/*
 * Regions: memory of a program or of a dma-buf, pinned and mapped once for the
 * device that does the DMA (that of the rings, so that an IOMMU knows it).
 *
 * A region lives until its file lets it go, or dies, or the link goes down,
 * and until no operation is on it any more. Pages are given back outside of
 * ls_link.io (unpinning takes the locks of the process's memory): from the
 * system call, or by reap_work.
 *
 * A device that goes must have nothing mapped, and an exporter may take its
 * time: who removes the host interface waits for it, behind its driver's remove(),
 * where no lock of the domain is held (ls_device_gone()). Links and cables may go
 * meanwhile; nobody waits there.
 *
 * Locks: ls_link.io guards ls_region.users and .dead and the reap list;
 * ls_mappings_lock guards the list of what is mapped, and is a leaf.
 */
#include <linux/dma-buf.h>
#include <linux/dma-map-ops.h>
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "linkspan.h"

/* MODULE_IMPORT_NS() takes a string on some kernels and a name on others. */
MODULE_INFO(import_ns, "DMA_BUF");

static LIST_HEAD(ls_mappings);
static DEFINE_SPINLOCK(ls_mappings_lock);
static DECLARE_WAIT_QUEUE_HEAD(ls_unmapped);

dma_addr_t ls_region_dma(struct ls_region *r, u64 pos)
{
	return r->dma[pos >> PAGE_SHIFT] + offset_in_page(pos);
}

/* For a frame that the device has sent from here, or written: within one page. */
void ls_region_sync(struct ls_region *r, u64 pos, u32 len, bool for_cpu)
{
	if (!r->sync)
		return;
	if (for_cpu)
		dma_sync_single_for_cpu(r->dev, ls_region_dma(r, pos), len, r->dir);
	else
		dma_sync_single_for_device(r->dev, ls_region_dma(r, pos), len, r->dir);
}

/*
 * By the CPU, into the region or out of it. The bounds are those of an
 * operation, which were checked. Nothing is synced: each frame of the device's
 * was, and what a bounce buffer holds is older than what the program wrote. The
 * CPU was let at a dma-buf when it was registered: its exporter, which may wait
 * for others, is not asked here, where the whole link waits.
 */
void ls_region_copy(struct ls_region *r, u64 pos, void *buf, u32 len, bool in)
{
	if (r->dmabuf) {
		if (in)
			iosys_map_memcpy_to(&r->vmap, r->start + pos, buf, len);
		else
			iosys_map_memcpy_from(buf, &r->vmap, r->start + pos, len);
		return;
	}
	while (len) {
		struct page *page = r->pages[pos >> PAGE_SHIFT];
		u32 n = min_t(u32, len, PAGE_SIZE - offset_in_page(pos));

		if (in)
			memcpy_to_page(page, offset_in_page(pos), buf, n);
		else
			memcpy_from_page(buf, page, offset_in_page(pos), n);
		pos += n;
		buf += n;
		len -= n;
	}
}

static void ls_dma_pages(struct ls_region *r, unsigned long skip)
{
	struct sg_dma_page_iter iter;
	unsigned long i = 0;

	for_each_sgtable_dma_page(r->map, &iter, 0) {
		if (i >= skip && i - skip < r->npages)
			r->dma[i - skip] = sg_page_iter_dma_address(&iter);
		i++;
	}
}

/*
 * Kernels before 6.10 say yes behind every IOMMU, and with that no dma-buf could be
 * taken. There only the CPU's caches count, and bounce buffers, which an IOMMU
 * comes with for devices that are not trusted.
 */
static bool ls_needs_sync(struct device *dev, dma_addr_t dma)
{
#ifdef LS_HAVE_DMA_DEV_NEED_SYNC
	return dma_need_sync(dev, dma);
#else
	if (!device_iommu_mapped(dev))
		return dma_need_sync(dev, dma);
	return !dev_is_dma_coherent(dev) || (dev_is_pci(dev) && to_pci_dev(dev)->untrusted);
#endif
}

/*
 * Where no page needs it none is synced: memory that is registered twice has one
 * address then, and the checker of the DMA API cannot tell which of two
 * mappings a part of it belongs to.
 */
static void ls_dma_ask(struct ls_region *r)
{
	unsigned long i;

	for (i = 0; i < r->npages && !r->sync; i++)
		r->sync = ls_needs_sync(r->dev, r->dma[i]);
}

/* The device that is mapped for, which stays until ls_unmap(). */
static int ls_map_begin(struct ls_file *f, struct ls_region *r)
{
	struct ls_link *lk = f->lk;

	mutex_lock(&lk->io);
	if (!f->dead && lk->running) {
		r->dev = get_device(tb_ring_dma_device(lk->pair[0].tx));
		spin_lock(&ls_mappings_lock);
		list_add(&r->mapping, &ls_mappings);
		spin_unlock(&ls_mappings_lock);
	}
	mutex_unlock(&lk->io);
	return r->dev ? 0 : -ENODEV;
}

static void ls_unmap(struct ls_region *r)
{
	if (!iosys_map_is_null(&r->vmap)) {
		dma_buf_end_cpu_access(r->dmabuf, r->dir);
		dma_buf_vunmap_unlocked(r->dmabuf, &r->vmap);
	}
	if (r->map && r->attach)
		dma_buf_unmap_attachment_unlocked(r->attach, r->map, r->dir);
	else if (r->map)
		dma_unmap_sgtable(r->dev, r->map, r->dir, DMA_ATTR_SKIP_CPU_SYNC);
	if (r->attach)
		dma_buf_detach(r->dmabuf, r->attach);
	spin_lock(&ls_mappings_lock);
	list_del(&r->mapping);
	spin_unlock(&ls_mappings_lock);
	wake_up_all(&ls_unmapped);
	put_device(r->dev);
}

static bool ls_is_mapped(struct device *dev)
{
	struct ls_region *r;
	bool yes = false;

	spin_lock(&ls_mappings_lock);
	list_for_each_entry(r, &ls_mappings, mapping)
		yes |= r->dev == dev;
	spin_unlock(&ls_mappings_lock);
	return yes;
}

/* After the driver of a host interface has gone, before the device does. */
static int ls_device_gone(struct notifier_block *nb, unsigned long event, void *data)
{
	struct device *dev = data;

	if (event != BUS_NOTIFY_UNBOUND_DRIVER && event != BUS_NOTIFY_DEL_DEVICE)
		return NOTIFY_DONE;
	while (!wait_event_timeout(ls_unmapped, !ls_is_mapped(dev), 10 * HZ))
		dev_warn(dev, "removal waits for memory that an exporter does not let go\n");
	return NOTIFY_DONE;
}

static struct notifier_block ls_device_notifier = {
	.notifier_call = ls_device_gone,
	/* Before the checker of the DMA API. */
	.priority = 1,
};

int ls_memory_init(void)
{
	return bus_register_notifier(&pci_bus_type, &ls_device_notifier);
}

void ls_memory_exit(void)
{
	bus_unregister_notifier(&pci_bus_type, &ls_device_notifier);
}

/* Pinned pages count as those of RDMA and io_uring do, against the limit of locked memory. */
static int ls_account(struct mm_struct *mm, unsigned long pages, bool more)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;

	if (!more) {
		atomic64_sub(pages, &mm->pinned_vm);
		return 0;
	}
	if (atomic64_add_return(pages, &mm->pinned_vm) <= limit || capable(CAP_IPC_LOCK))
		return 0;
	atomic64_sub(pages, &mm->pinned_vm);
	return -ENOMEM;
}

static void ls_region_free(struct ls_region *r)
{
	if (r->dev)
		ls_unmap(r);
	if (r->dmabuf) {
		dma_buf_put(r->dmabuf);
	} else {
		sg_free_table(&r->sgt);
		if (r->npages)
			unpin_user_pages_dirty_lock(r->pages, r->npages, r->flags & LS_REGION_WRITE);
		if (r->mm) {
			ls_account(r->mm, r->npages, false);
			mmdrop(r->mm);
		}
	}
	kvfree(r->pages);
	kvfree(r->dma);
	kfree(r);
}

static int ls_pin(struct ls_file *f, struct ls_region *r, u64 addr)
{
	unsigned long want = DIV_ROUND_UP(r->head + r->length, PAGE_SIZE);
	unsigned int flags = FOLL_LONGTERM | (r->flags & LS_REGION_WRITE ? FOLL_WRITE : 0);
	struct mm_struct *mm = current->mm;
	unsigned long start = addr & PAGE_MASK;
	int ret;

	if (!mm)
		return -EINVAL;
	ret = ls_account(mm, want, true);
	if (ret)
		return ret;
	r->pages = kvcalloc(want, sizeof(*r->pages), GFP_KERNEL_ACCOUNT);
	r->dma = kvcalloc(want, sizeof(*r->dma), GFP_KERNEL_ACCOUNT);
	if (!r->pages || !r->dma) {
		ret = -ENOMEM;
		goto err;
	}
	while (r->npages < want) {
		int n = min_t(unsigned long, want - r->npages, 1024);

		if (fatal_signal_pending(current)) {
			ret = -EINTR;
			goto err;
		}
		n = pin_user_pages_fast(start + r->npages * PAGE_SIZE, n, flags, r->pages + r->npages);
		if (n <= 0) {
			ret = n ?: -EFAULT;
			goto err;
		}
		r->npages += n;
		cond_resched();
	}
	mmgrab(mm);
	r->mm = mm;
	ret = ls_map_begin(f, r);
	if (ret)
		return ret;
	ret = sg_alloc_table_from_pages_segment(&r->sgt, r->pages, want, 0, want << PAGE_SHIFT,
						ALIGN_DOWN(dma_get_max_seg_size(r->dev), PAGE_SIZE),
						GFP_KERNEL_ACCOUNT);
	if (ret)
		return ret;
	/* Frames are synced, one by one. Unmapping would bring back what the program has written over since. */
	ret = dma_map_sgtable(r->dev, &r->sgt, r->dir, DMA_ATTR_SKIP_CPU_SYNC);
	if (ret)
		return ret;
	r->map = &r->sgt;
	ls_dma_pages(r, 0);
	ls_dma_ask(r);
	return 0;
err:
	ls_account(mm, want, false);
	return ret;
}

static int ls_import(struct ls_file *f, struct ls_region *r, int fd, u64 offset)
{
	struct scatterlist *sg;
	int i, ret;

	if (!PAGE_ALIGNED(offset))
		return -EINVAL;
	r->dmabuf = dma_buf_get(fd);
	if (IS_ERR(r->dmabuf)) {
		ret = PTR_ERR(r->dmabuf);
		r->dmabuf = NULL;
		return ret;
	}
	if (offset > r->dmabuf->size || r->length > r->dmabuf->size - offset)
		return -ERANGE;
	r->start = offset;
	r->npages = DIV_ROUND_UP(r->length, PAGE_SIZE);
	r->dma = kvcalloc(r->npages, sizeof(*r->dma), GFP_KERNEL_ACCOUNT);
	if (!r->dma)
		return -ENOMEM;
	ret = ls_map_begin(f, r);
	if (ret)
		return ret;
	r->attach = dma_buf_attach(r->dmabuf, r->dev);
	if (IS_ERR(r->attach)) {
		ret = PTR_ERR(r->attach);
		r->attach = NULL;
		return ret;
	}
	r->map = dma_buf_map_attachment_unlocked(r->attach, r->dir);
	if (IS_ERR(r->map)) {
		ret = PTR_ERR(r->map);
		r->map = NULL;
		return ret;
	}
	for_each_sgtable_dma_sg(r->map, sg, i) {
		if (!PAGE_ALIGNED(sg_dma_address(sg)) || !PAGE_ALIGNED(sg_dma_len(sg)))
			return -EOPNOTSUPP;
	}
	ls_dma_pages(r, offset >> PAGE_SHIFT);
	for (i = 0; i < r->npages; i++) {
		if (!r->dma[i])
			return -EOPNOTSUPP;
	}
	/* Its exporter, which syncs, does not know of our frames: behind a bounce buffer they would be lost. */
	ls_dma_ask(r);
	if (r->sync)
		return -EOPNOTSUPP;
	/* Ends of transfers are copied: the CPU is let at it once, here, where nobody else waits for the exporter. */
	ret = dma_buf_vmap_unlocked(r->dmabuf, &r->vmap);
	if (ret)
		return ret;
	ret = dma_buf_begin_cpu_access(r->dmabuf, r->dir);
	if (ret) {
		dma_buf_vunmap_unlocked(r->dmabuf, &r->vmap);
		iosys_map_clear(&r->vmap);
	}
	return ret;
}

int ls_region_add(struct ls_file *f, struct ls_ioc_register *arg)
{
	struct ls_link *lk = f->lk;
	struct ls_region *r;
	int ret;

	if (arg->reserved || !arg->length || arg->length > LS_REGION_BYTES ||
	    arg->flags & ~(LS_REGION_READ | LS_REGION_WRITE | LS_REGION_DMABUF) ||
	    !(arg->flags & (LS_REGION_READ | LS_REGION_WRITE)) || arg->addr + arg->length < arg->addr)
		return -EINVAL;
	if (!(arg->flags & LS_REGION_DMABUF) && arg->fd)
		return -EINVAL;
	r = kzalloc(sizeof(*r), GFP_KERNEL_ACCOUNT);
	if (!r)
		return -ENOMEM;
	INIT_LIST_HEAD(&r->list);
	r->flags = arg->flags;
	r->length = arg->length;
	switch (arg->flags & (LS_REGION_READ | LS_REGION_WRITE)) {
	case LS_REGION_READ:
		r->dir = DMA_TO_DEVICE;
		break;
	case LS_REGION_WRITE:
		r->dir = DMA_FROM_DEVICE;
		break;
	default:
		r->dir = DMA_BIDIRECTIONAL;
	}
	if (arg->flags & LS_REGION_DMABUF) {
		ret = ls_import(f, r, arg->fd, arg->addr);
	} else {
		r->head = offset_in_page(arg->addr);
		ret = ls_pin(f, r, arg->addr);
	}
	if (ret)
		goto err;

	ret = xa_alloc(&f->regions, &r->id, NULL, XA_LIMIT(0, LS_REGIONS - 1), GFP_KERNEL_ACCOUNT);
	if (ret)
		goto err;
	/* The link may have gone meanwhile: then nothing else would release the region. */
	mutex_lock(&lk->io);
	if (f->dead)
		ret = -ENODEV;
	else
		xa_store(&f->regions, r->id, r, GFP_KERNEL);
	lk->pages += r->npages;
	mutex_unlock(&lk->io);
	if (ret) {
		xa_erase(&f->regions, r->id);
		goto err;
	}
	arg->region = r->id;
	return 0;
err:
	ls_region_free(r);
	return ret;
}

int ls_region_remove(struct ls_file *f, u32 id)
{
	struct ls_region *r;
	int ret = 0;

	mutex_lock(&f->lk->io);
	r = f->dead ? NULL : xa_load(&f->regions, id);
	if (!r)
		ret = f->dead ? -ENODEV : -ENOENT;
	else if (r->users)
		ret = -EBUSY;
	else
		xa_erase(&f->regions, id);
	mutex_unlock(&f->lk->io);
	if (!ret)
		ls_region_free(r);
	return ret;
}

/* io is held. Those in use follow when they no longer are. */
void ls_regions_drop(struct ls_file *f, struct list_head *reap)
{
	struct ls_region *r;
	unsigned long id;

	xa_for_each(&f->regions, id, r) {
		xa_erase(&f->regions, id);
		r->dead = true;
		if (!r->users)
			list_add_tail(&r->list, reap);
	}
}

void ls_region_put(struct ls_link *lk, struct ls_region *r)
{
	if (--r->users || !r->dead)
		return;
	list_add_tail(&r->list, &lk->reap);
	ls_reap_soon(lk);
}

void ls_regions_free(struct list_head *reap)
{
	struct ls_region *r, *n;

	list_for_each_entry_safe(r, n, reap, list) {
		list_del(&r->list);
		ls_region_free(r);
	}
}

void ls_reap(struct work_struct *work)
{
	struct ls_link *lk = container_of(work, struct ls_link, reap_work);
	LIST_HEAD(reap);

	mutex_lock(&lk->io);
	list_splice_init(&lk->reap, &reap);
	mutex_unlock(&lk->io);
	ls_regions_free(&reap);
	put_device(&lk->dev);
}

/* An exporter may take its time, and the link go meanwhile. */
void ls_reap_soon(struct ls_link *lk)
{
	get_device(&lk->dev);
	if (!queue_work(ls_wq, &lk->reap_work))
		put_device(&lk->dev);
}
