/* Device memory under every test, with --mem cuda: a device range behind each registered buffer. What is sent is copied
 * there before and what was received is copied back after, so that the tests themselves know only their buffers. */
#ifndef PLUGIN_HOST_GPU_H
#define PLUGIN_HOST_GPU_H

#include <stdbool.h>
#include <stddef.h>

#include "abi.h"

/* Whether --mem cuda was given. */
bool gpu_on(void);
/* Opens the driver and makes device 0 this thread's, once for each thread. */
void gpu_thread(void);
/* Device memory for a buffer; from then on known by `mr` (gpu_name). */
void *gpu_new(void *host, size_t size);
void gpu_name(void *device, void *mr);
/* The registration has ended: its device memory is gone at once. */
void gpu_free(void *mr);
/* A dma-buf of device memory: descriptor and offset; -1 where a real device (PLUGIN_HOST_REAL) exports none. Nothing of the driver's may be left open by the caller. */
int gpu_export(void *device, size_t size, uint64_t *offset);
/* The device address of a place in a registered buffer, with `len` bytes from the buffer copied there. */
void *gpu_at(void *mr, void *host, size_t len);
/* Copies between the host and device addresses. */
void gpu_read(void *out, uint64_t device, size_t len);
void gpu_write(uint64_t device, const void *bytes, size_t len);
/* A receive was posted into buffers whose device addresses are known. */
void gpu_posted(void *request, void *comm, int n, void **host, void **device, const size_t *sizes, void **mrs);
/* A request is done: if it is such a receive, true, and its first part for a flush. */
struct gpu_part {
	void *comm, *device, *mr;
	size_t size;
};
bool gpu_done(void *request, struct gpu_part *first);
/* After the flush: the bytes are in the buffers. */
void gpu_down(void *request);

#endif
