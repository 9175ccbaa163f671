// SPDX-License-Identifier: GPL-2.0
/*
 * Polling threads, one for an open file that asks for one in its HELLO.
 *
 * While a thread is awake it takes the program's entries and empties the
 * rings: the program needs no call, and io_work leaves the rings masked. With
 * nothing to do for as long as the program said, it tells so in the queue's
 * page (LS_QUEUE_WAKE), lets interrupts do the work, and sleeps until the next
 * doorbell. What arrives meanwhile does not wake it.
 *
 * Its time is on no process's account: it is counted, and there are at most as
 * many threads as the parameter `pollers` says.
 *
 * Locks: ls_link.io guards ls_file.polling and .woken, and ls_link.pollers,
 * the threads that are awake.
 */
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/sched.h>

#include "linkspan.h"

static atomic_t ls_pollers = ATOMIC_INIT(0);

/* io is held. With the last one, the rings get their interrupts back. */
void ls_polling(struct ls_file *f, bool yes)
{
	struct ls_link *lk = f->lk;

	if (f->polling == yes)
		return;
	f->polling = yes;
	lk->pollers += yes ? 1 : -1;
	if (!lk->pollers)
		queue_work(ls_io_wq, &lk->io_work);
}

/* One look at everything; true when there was something for this file. */
static bool ls_look(struct ls_file *f)
{
	struct ls_link *lk = f->lk;
	u32 head, tail, taken = 0;
	u64 frames, ran;
	bool busy = false;

	mutex_lock(&lk->io);
	if (!f->dead) {
		head = f->sq_head;
		tail = f->cq_tail;
		frames = lk->polled;
		/* A queue that makes no sense is told to the program's next call. */
		ls_submit(f, &taken);
		ls_poll(lk);
		busy = f->sq_head != head || f->cq_tail != tail || (f->live && lk->polled != frames);
	}
	ran = current->se.sum_exec_runtime;
	lk->polled_ns += ran - f->ran;
	f->ran = ran;
	mutex_unlock(&lk->io);
	return busy;
}

/* Until a doorbell, or the end. */
static void ls_rest(struct ls_file *f)
{
	struct ls_link *lk = f->lk;

	mutex_lock(&lk->io);
	f->woken = false;
	WRITE_ONCE(f->q->flags, LS_QUEUE_WAKE);
	/* A program puts an entry before it looks for the flag. */
	smp_mb();
	if (f->dead || ls_waiting(f) <= 0) {
		ls_polling(f, false);
		mutex_unlock(&lk->io);
		wait_event_idle(f->wake, READ_ONCE(f->woken) || kthread_should_stop());
		mutex_lock(&lk->io);
		if (!f->dead)
			ls_polling(f, true);
	}
	WRITE_ONCE(f->q->flags, 0);
	mutex_unlock(&lk->io);
}

static int ls_poller(void *data)
{
	struct ls_file *f = data;
	struct ls_link *lk = f->lk;
	u64 since = ktime_get_ns();

	mutex_lock(&lk->io);
	if (!f->dead)
		ls_polling(f, true);
	mutex_unlock(&lk->io);
	while (!kthread_should_stop()) {
		if (ls_look(f)) {
			since = ktime_get_ns();
		} else if (READ_ONCE(f->dead) || ktime_get_ns() - since >= f->idle_ns) {
			ls_rest(f);
			since = ktime_get_ns();
		}
		cond_resched();
	}
	mutex_lock(&lk->io);
	ls_polling(f, false);
	mutex_unlock(&lk->io);
	return 0;
}

/* Made before the file is ready; runs the caller's wake_up_process() on. */
int ls_poller_make(struct ls_file *f, u32 idle_us)
{
	struct task_struct *task;

	if (atomic_inc_return(&ls_pollers) > READ_ONCE(ls_max_pollers)) {
		atomic_dec(&ls_pollers);
		return -EBUSY;
	}
	f->idle_ns = (u64)(idle_us ?: LS_POLL_IDLE_US) * NSEC_PER_USEC;
	task = kthread_create(ls_poller, f, "linkspan/%d", f->lk->index);
	if (IS_ERR(task)) {
		atomic_dec(&ls_pollers);
		return PTR_ERR(task);
	}
	f->poller = task;
	return 0;
}

/* io is held: by a doorbell. */
void ls_poller_wake(struct ls_file *f)
{
	if (!f->poller)
		return;
	f->woken = true;
	wake_up(&f->wake);
}

/* Nothing of the thread runs after it. io is not held. */
void ls_poller_stop(struct ls_file *f)
{
	if (!f->poller)
		return;
	kthread_stop(f->poller);
	f->poller = NULL;
	atomic_dec(&ls_pollers);
}
