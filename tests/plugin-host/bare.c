#define _GNU_SOURCE
#include "bare.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util.h"

int bare_open(struct rank *r)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
	CHECK(fd >= 0, "socket: %s", strerror(errno));
	if (r->id == 1) {
		CHECK(bind(fd, (void *)&at, len) == 0 && listen(fd, 1) == 0 && getsockname(fd, (void *)&at, &len) == 0,
		      "listen: %s", strerror(errno));
		r->shared->slot[60] = ntohs(at.sin_port);
		barrier(r);
		int got = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
		CHECK(got >= 0, "accept: %s", strerror(errno));
		close(fd);
		fd = got;
	} else {
		barrier(r);
		at.sin_port = htons((uint16_t)r->shared->slot[60]);
		CHECK(connect(fd, (void *)&at, len) == 0, "connect: %s", strerror(errno));
	}
	/* As linkspan does, so that the two differ in nothing but the plugin. Without the module the default stays. */
	setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

static size_t some(ssize_t n)
{
	CHECK(n > 0 || (n < 0 && errno == EAGAIN), "the bare connection broke: %s", n ? strerror(errno) : "end of stream");
	return n > 0 ? (size_t)n : 0;
}

void bare_send(int fd, const void *at, size_t len)
{
	for (size_t off = 0; off < len;)
		off += some(send(fd, (const char *)at + off, len - off, MSG_NOSIGNAL));
}

void bare_recv(int fd, void *at, size_t len)
{
	for (size_t off = 0; off < len;)
		off += some(recv(fd, (char *)at + off, len - off, 0));
}

void bare_rate(struct rank *r, int fd, char *mem, size_t size, int window, uint64_t count)
{
	uint64_t total = count * size, moved = 0, acked = 0, transport = (uint64_t)window * size, word;
	size_t partial = 0;
	char *ack = (char *)&word;
	while (r->id == 0 ? acked < total : moved < total) {
		if (r->id == 0) {
			uint64_t len = acked + transport - moved;
			if (len > total - moved)
				len = total - moved;
			if (len > 0)
				moved += some(send(fd, mem + moved % transport, moved % transport + len > transport ? transport - moved % transport : len,
						   MSG_NOSIGNAL));
			partial += some(recv(fd, ack + partial, 8 - partial, 0));
			if (partial == 8)
				acked = word, partial = 0;
			continue;
		}
		size_t n = some(recv(fd, mem, transport, 0));
		moved += n;
		if (n > 0 && moved / size * size > acked) {
			acked = word = moved / size * size;
			bare_send(fd, &word, 8);
		}
	}
}

void bare_stream(struct rank *r, int fd, char *mem, size_t size, int window, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		char *at = mem + i % (unsigned)window * size;
		if (r->id == 0)
			bare_send(fd, at, size);
		else
			bare_recv(fd, at, size);
	}
}
