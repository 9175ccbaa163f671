#include "plant.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi.h"
#include "util.h"

enum plant plant;
size_t plant_line;

/* A posted receive, as far as a fault needs it. */
struct posted {
	void *request, *comm;
	int n;
	char *data[8], *shadow[8];
	size_t sizes[8];
	bool used;
	/* torn-flag: polls until the rest of the lines is let in, and the sizes to report then. */
	int hold, got[8];
};

static struct posted posted[1024];
static char *last_message;
static size_t last_len;
static unsigned count;

bool plant_choose(const char *name)
{
	static const char *const names[] = {"none", "torn-flag", "swapped-tags", "short-size", "dup",
					    "corrupt", "overrun", "lost-error", "leak"};
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
		if (strcmp(name, names[i]) == 0) {
			plant = (enum plant)i;
			return true;
		}
	return false;
}

static char *pending_shadow[8];

void plant_irecv(int n, void **data, const size_t *sizes, int *tags)
{
	if (plant == PLANT_SWAPPED_TAGS && n > 1) {
		int t = tags[0];
		tags[0] = tags[1];
		tags[1] = t;
	}
	if (plant == PLANT_TORN_FLAG)
		for (int i = 0; i < n && i < 8; i++) {
			/* Lets the plugin write elsewhere; the bytes come over later, in the wrong order. */
			pending_shadow[i] = calloc(1, sizes[i] + 1);
			data[i] = pending_shadow[i];
		}
}

void plant_posted(void *comm, void *request, int n, void **data, const size_t *sizes)
{
	if (plant == PLANT_NONE || n > 8)
		return;
	for (unsigned i = 0; i < sizeof posted / sizeof *posted; i++) {
		struct posted *p = &posted[i];
		if (p->used)
			continue;
		memset(p, 0, sizeof *p);
		p->used = true, p->request = request, p->comm = comm, p->n = n;
		for (int k = 0; k < n; k++)
			p->data[k] = data[k], p->sizes[k] = sizes[k], p->shadow[k] = pending_shadow[k];
		memset(pending_shadow, 0, sizeof pending_shadow);
		return;
	}
}

static struct posted *find(void *request)
{
	for (unsigned i = 0; i < sizeof posted / sizeof *posted; i++)
		if (posted[i].used && posted[i].request == request)
			return &posted[i];
	return NULL;
}

/* Lets either the flags or the rest of each line in. */
static void let_in(struct posted *p, bool flags)
{
	size_t flag = plant_line == 8 ? 4 : 8;
	for (int k = 0; k < p->n; k++)
		for (size_t at = 0; plant_line && at + plant_line <= p->sizes[k] && (int)at < p->got[k]; at += plant_line) {
			size_t from = flags ? at + plant_line - flag : at;
			size_t len = flags ? flag : plant_line - flag;
			memcpy(p->data[k] + from, p->shadow[k] + from, len);
			__atomic_thread_fence(__ATOMIC_SEQ_CST);
		}
}

bool plant_hold(void *request, int *done, int *sizes)
{
	if (plant != PLANT_TORN_FLAG)
		return true;
	struct posted *p = find(request);
	if (p == NULL || p->hold == 0)
		return true;
	*done = 0;
	if (--p->hold > 1)
		return false;
	let_in(p, false);
	for (int k = 0; k < p->n; k++) {
		memcpy(p->data[k], p->shadow[k], (size_t)p->got[k]);
		free(p->shadow[k]);
		if (sizes)
			sizes[k] = p->got[k];
	}
	*done = 1;
	p->used = false;
	return false;
}

void plant_done(void *request, int *done, int *sizes)
{
	struct posted *p = plant == PLANT_NONE ? NULL : find(request);
	if (p == NULL)
		return;
	if (plant == PLANT_TORN_FLAG) {
		for (int k = 0; k < p->n; k++)
			p->got[k] = sizes ? sizes[k] : (int)p->sizes[k];
		let_in(p, true);
		p->hold = 2000;
		*done = 0;
		return;
	}
	p->used = false;
	if (sizes == NULL || sizes[0] == 0)
		return;
	count++;
	if (plant == PLANT_SHORT_SIZE)
		sizes[0]--;
	if (plant == PLANT_CORRUPT && count % 3 == 0)
		p->data[0][sizes[0] / 2] ^= 0x10;
	if (plant == PLANT_OVERRUN && (size_t)sizes[0] < p->sizes[0])
		p->data[0][sizes[0]] ^= 1;
	if (plant == PLANT_DUP) {
		size_t len = (size_t)sizes[0];
		if (count % 5 == 0 && last_len <= p->sizes[0]) {
			memcpy(p->data[0], last_message, last_len);
			sizes[0] = (int)last_len;
			return;
		}
		last_message = realloc(last_message, len);
		memcpy(last_message, p->data[0], len);
		last_len = len;
	}
}

int plant_failed(int rc, int *done)
{
	if (plant != PLANT_LOST_ERROR || rc != E_REMOTE)
		return rc;
	if (done)
		*done = 0;
	return OK;
}

void plant_unload(void)
{
	if (plant == PLANT_LEAK && dup(2) < 0)
		fail("dup");
}
