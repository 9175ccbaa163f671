// SPDX-License-Identifier: GPL-2.0
/*
 * What one may look at: counters in /sys/kernel/debug/linkspan/<n>, and the
 * tracepoints of trace.h.
 *
 * Locks: a reader takes ls_link.io; debugfs_remove() waits for readers.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "linkspan.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

static struct dentry *ls_debug;

static int ls_counters_show(struct seq_file *m, void *unused)
{
	struct ls_link *lk = m->private;
	u32 sends = 0, recvs = 0, open = 0, i;
	struct ls_op *op;

	mutex_lock(&lk->io);
	for (i = 0; i < LS_CHANNELS; i++)
		open += lk->chans[i].local == LS_OPEN;
	list_for_each_entry(op, &lk->ops, all) {
		if (op->opcode == LS_OP_SEND)
			sends++;
		else
			recvs++;
	}
	seq_printf(m, "mode %s\nstate %u\nepoch %u\n", ls_clients[lk->mode]->name, lk->state, lk->epoch);
	seq_printf(m, "restarts %llu\nring_size %u\n", lk->restarts, lk->ring_size);
	seq_printf(m, "tx_frames %llu\nrx_frames %llu\ntx_bytes %llu\nrx_bytes %llu\n", lk->tx_frames, lk->rx_frames,
		   lk->tx_bytes, lk->rx_bytes);
	seq_printf(m, "control_frames %llu\ncopied_bytes %llu\ndoorbells %llu\n", lk->control, lk->copied,
		   lk->doorbells);
	seq_printf(m, "interrupts %lld\npolls %llu\npages %llu\n", (s64)atomic64_read(&lk->interrupts),
		   lk->polls, lk->pages);
	seq_printf(m, "frames_sent_again %llu\nframes_missing %llu\nframes_doubled %llu\nframes_damaged %llu\n",
		   lk->resent, lk->gaps, lk->doubled, lk->damaged);
	seq_printf(m, "data_reordered %llu\nframes_without_interrupt %llu\n", lk->voids, lk->found);
	seq_printf(m, "channels_open %u\nsends_waiting %u\nreceives_waiting %u\n", open, sends, recvs);
	mutex_unlock(&lk->io);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(ls_counters);

void ls_debug_add(struct ls_link *lk)
{
	char name[16];

	snprintf(name, sizeof(name), "%d", lk->index);
	lk->debug = debugfs_create_file(name, 0400, ls_debug, lk, &ls_counters_fops);
}

void ls_debug_remove(struct ls_link *lk)
{
	debugfs_remove(lk->debug);
}

void ls_debug_init(void)
{
	ls_debug = debugfs_create_dir("linkspan", NULL);
}

void ls_debug_exit(void)
{
	debugfs_remove(ls_debug);
}
