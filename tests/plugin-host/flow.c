#include "flow.h"

#include <sched.h>

#include "util.h"

#define PATIENCE (20 * SECOND)

void *try_send(struct rank *r, void *comm, void *data, size_t size, int tag, void *mr)
{
	void *request;
	int rc = net_isend(&r->net, comm, data, size, tag, mr, &request);
	CHECK(rc == OK, "isend of %zu bytes returned %d", size, rc);
	return request;
}

void *try_recv(struct rank *r, void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs, bool optional)
{
	void *request;
	int rc = net_irecv(&r->net, comm, n, data, sizes, tags, mrs, optional, &request);
	CHECK(rc == OK, "irecv of %d parts returned %d", n, rc);
	return request;
}

void *send_start(struct rank *r, void *comm, void *data, size_t size, int tag, void *mr)
{
	uint64_t end = now_ns() + PATIENCE;
	for (void *request;;) {
		if ((request = try_send(r, comm, data, size, tag, mr)) != NULL)
			return request;
		CHECK(now_ns() < end, "isend of %zu bytes stays busy for 20 s", size);
	}
}

void *recv_start(struct rank *r, void *comm, void *data, size_t size, int tag, void *mr)
{
	uint64_t end = now_ns() + PATIENCE;
	for (void *request;;) {
		if ((request = try_recv(r, comm, 1, &data, &size, &tag, &mr, false)) != NULL)
			return request;
		CHECK(now_ns() < end, "irecv of %zu bytes stays busy for 20 s", size);
	}
}

bool poll_done(struct rank *r, void *request, int *sizes)
{
	int done, rc = net_test(&r->net, request, &done, sizes);
	CHECK(rc == OK, "test returned %d", rc);
	return done == 1;
}

int finish(struct rank *r, void *request)
{
	uint64_t end = now_ns() + PATIENCE;
	int sizes[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
	while (!poll_done(r, request, sizes))
		CHECK(now_ns() < end, "a request is not done after 20 s");
	return sizes[0];
}

void exchange(struct rank *r, void *send, void *out, size_t out_len, void *out_mr, void *recv, void *in, size_t posted,
	      void *in_mr, size_t expected)
{
	uint64_t end = now_ns() + PATIENCE;
	void *s = NULL, *q = NULL;
	bool sent = false, got = false;
	int tag = 0, size = -1;
	for (unsigned i = 0; !sent || !got; i++) {
		if (q == NULL)
			q = try_recv(r, recv, 1, &in, &posted, &tag, &in_mr, false);
		if (s == NULL)
			s = try_send(r, send, out, out_len, 0, out_mr);
		if (s && !sent)
			sent = poll_done(r, s, NULL);
		if (q && !got)
			got = poll_done(r, q, &size);
		CHECK(now_ns() < end, "an exchange hangs: sent %d, received %d", sent, got);
		if (i % 16 == 15)
			sched_yield();
	}
	CHECK((size_t)size == expected, "received %d bytes where %zu were sent", size, expected);
}
