/* Faults planted between the plugin and the checkers, so that each checker is seen to fail. */
#ifndef PLUGIN_HOST_PLANT_H
#define PLUGIN_HOST_PLANT_H

#include <stdbool.h>
#include <stddef.h>

enum plant {
	PLANT_NONE,
	PLANT_TORN_FLAG,    /* flags of LL and LL128 lines become visible before their data */
	PLANT_SWAPPED_TAGS, /* two parts of a grouped receive get each other's tag */
	PLANT_SHORT_SIZE,   /* a receive reports one byte too few */
	PLANT_DUP,          /* a message arrives a second time in place of its successor */
	PLANT_CORRUPT,      /* a bit is wrong */
	PLANT_OVERRUN,      /* a byte behind what was sent changes */
	PLANT_LOST_ERROR,   /* the death of the peer is not reported */
	PLANT_LEAK,         /* a descriptor is left open at unload */
};

extern enum plant plant;
/* Bytes of a line whose last quarter (LL: 8, with a 4-byte flag) or last 8 bytes (LL128: 128) are its flag. */
extern size_t plant_line;

/* Sets `plant` by name; false for an unknown one. */
bool plant_choose(const char *name);

/* Before irecv: may change what is posted. */
void plant_irecv(int n, void **data, const size_t *sizes, int *tags);
/* After irecv started a request. */
void plant_posted(void *comm, void *request, int n, void **data, const size_t *sizes);
/* Before test: false when the fault holds a finished request back; writes done (and sizes) then. */
bool plant_hold(void *request, int *done, int *sizes);
/* After a call failed: may hide it. Returns the result; `done` may be null. */
int plant_failed(int rc, int *done);
/* Before unload. */
void plant_unload(void);
/* After test reported done. May take it back. */
void plant_done(void *request, int *done, int *sizes);

#endif
