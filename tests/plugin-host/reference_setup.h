/* Listening, connecting and accepting of reference.c. */

static int listen_any(int dev, void *out, void **comm)
{
	struct handle h = {.mark = MARK, .at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof h.at;
	if (dev != 0)
		return E_ARGUMENT;
	struct listener *l = calloc(1, sizeof *l);
	l->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (l->fd < 0 || bind(l->fd, (void *)&h.at, len) || listen(l->fd, 1024) ||
	    getsockname(l->fd, (void *)&h.at, &len) || getrandom(h.token, 16, 0) != 16) {
		free(l);
		return E_SYSTEM;
	}
	memcpy(l->token, h.token, 16);
	memset(out, 0, HANDLE);
	memcpy(out, &h, sizeof h);
	pthread_mutex_lock(&lock);
	l->next = listeners;
	listeners = l;
	pthread_mutex_unlock(&lock);
	*comm = l;
	return OK;
}

static struct comm *comm_new(int fd, bool sends)
{
	struct comm *c = calloc(1, sizeof *c);
	int one = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	c->fd = fd, c->sends = sends;
	pthread_mutex_lock(&lock);
	c->next = comms;
	comms = c;
	pthread_mutex_unlock(&lock);
	return c;
}

static int connect_any(int dev, void *handle, void **comm)
{
	struct handle h;
	memcpy(&h, handle, sizeof h);
	*comm = NULL;
	if (dev != 0 || h.mark != MARK)
		return E_ARGUMENT;
	struct going *g = NULL;
	pthread_mutex_lock(&lock);
	if (h.cookie != 0 && h.place < 64 && going[h.place].cookie == h.cookie)
		g = &going[h.place];
	bool fresh = g == NULL;
	for (int i = 0; g == NULL && i < 64; i++)
		if (going[i].cookie == 0) {
			g = &going[i];
			g->cookie = ++cookies;
			h.place = (uint64_t)i, h.cookie = g->cookie;
		}
	pthread_mutex_unlock(&lock);
	if (g == NULL)
		return E_SYSTEM;
	if (fresh) {
		g->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (connect(g->fd, (void *)&h.at, sizeof h.at) < 0 && errno != EINPROGRESS)
			goto refused;
		memcpy(handle, &h, sizeof h);
	}
	char hello[24];
	memcpy(hello, &h.mark, 8);
	memcpy(hello + 8, h.token, 16);
	ssize_t n = send(g->fd, hello, sizeof hello, MSG_NOSIGNAL);
	if (n == sizeof hello) {
		*comm = comm_new(g->fd, true);
		g->cookie = 0;
		return OK;
	}
	if (n < 0 && (errno == EAGAIN || errno == ENOTCONN))
		return OK;
refused:
	close(g->fd);
	g->cookie = 0;
	return E_REMOTE;
}

static int accept_any(void *listen, void **comm)
{
	struct listener *l = listen;
	*comm = NULL;
	for (int fd; (fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
		struct guest *oldest = &l->guest[0];
		for (int i = 0; i < GUESTS; i++)
			if (l->guest[i].fd == 0 || (oldest->fd != 0 && l->guest[i].since < oldest->since))
				oldest = &l->guest[i];
		if (oldest->fd > 0)
			close(oldest->fd);
		*oldest = (struct guest){.fd = fd, .since = time(NULL)};
	}
	for (int i = 0; i < GUESTS; i++) {
		struct guest *g = &l->guest[i];
		if (g->fd == 0)
			continue;
		ssize_t n = recv(g->fd, g->hello + g->off, sizeof g->hello - g->off, 0);
		if (n > 0)
			g->off += (size_t)n;
		uint64_t mark = MARK;
		bool whole = g->off == sizeof g->hello;
		bool good = whole && memcmp(g->hello, &mark, 8) == 0 && memcmp(g->hello + 8, l->token, 16) == 0;
		if (good) {
			*comm = comm_new(g->fd, false);
			g->fd = 0;
			return OK;
		}
		if (whole || n == 0 || (n < 0 && errno != EAGAIN) || time(NULL) - g->since > 5) {
			close(g->fd);
			g->fd = 0;
		}
	}
	return OK;
}
