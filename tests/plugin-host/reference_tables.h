/* The tables of reference.c: what differs from version to version. */

#define PROPS_FN(v, ...)                                                                                    \
	static int props_##v(int dev, struct props_##v *p)                                                  \
	{                                                                                                   \
		if (dev != 0)                                                                               \
			return E_ARGUMENT;                                                                  \
		*p = (struct props_##v){.name = "reference0", .guid = 1, .ptr = PTR_HOST, .speed = 10000, \
					.max_comms = 1024, .max_recvs = PARTS, ##__VA_ARGS__};              \
		return OK;                                                                                  \
	}
PROPS_FN(v6)
PROPS_FN(v7)
PROPS_FN(v8)
PROPS_FN(v9, .v = {.n = 1}, .max_p2p = 1 << 30, .max_coll = 1 << 30)
PROPS_FN(v11, .v = {.n = 1}, .max_p2p = 1 << 30, .max_coll = 1 << 30, .max_multi = 1)
PROPS_FN(v12, .v = {.n = 1}, .max_p2p = 1 << 30, .max_coll = 1 << 30, .max_multi = 1, .rail = -1, .plane = -1)

static int ref_init_v6(log_fn log)
{
	(void)log;
	return init_any();
}
static int ref_init_v10(log_fn log, prof_fn prof)
{
	(void)log, (void)prof;
	return init_any();
}
static int ref_init_v11(void **ctx, uint64_t id, struct config *config, log_fn log, prof_fn prof)
{
	(void)id, (void)config, (void)log, (void)prof;
	*ctx = &users;
	return init_any();
}
static int ref_listen_v11(void *ctx, int dev, void *handle, void **comm)
{
	(void)ctx;
	return listen_any(dev, handle, comm);
}
static int ref_connect_v7(int dev, void *handle, void **comm, struct dev_handle **device)
{
	(void)device;
	return connect_any(dev, handle, comm);
}
static int ref_connect_v10(int dev, struct config *config, void *handle, void **comm, struct dev_handle **device)
{
	(void)config, (void)device;
	return connect_any(dev, handle, comm);
}
static int ref_connect_v11(void *ctx, int dev, void *handle, void **comm, struct dev_handle **device)
{
	(void)ctx, (void)device;
	return connect_any(dev, handle, comm);
}
static int ref_accept_v7(void *listen, void **comm, struct dev_handle **device)
{
	(void)device;
	return accept_any(listen, comm);
}
static int ref_reg_v6(void *comm, void *data, int size, int type, void **mr)
{
	(void)size;
	return reg_any(comm, data, type, mr);
}
static int ref_reg_v8(void *comm, void *data, size_t size, int type, void **mr)
{
	(void)size;
	return reg_any(comm, data, type, mr);
}
static int ref_isend_v6(void *comm, void *data, int size, int tag, void *mr, void **request)
{
	(void)mr;
	return isend_any(comm, data, (size_t)size, tag, request);
}
static int ref_isend_v9(void *comm, void *data, size_t size, int tag, void *mr, void **request)
{
	(void)mr;
	return isend_any(comm, data, size, tag, request);
}
static int ref_isend_v10(void *comm, void *data, size_t size, int tag, void *mr, void *ph, void **request)
{
	(void)mr, (void)ph;
	return isend_any(comm, data, size, tag, request);
}
static int ref_irecv_v6(void *comm, int n, void **data, int *sizes, int *tags, void **mrs, void **request)
{
	(void)mrs;
	return irecv_any(comm, n, data, NULL, sizes, tags, request);
}
static int ref_irecv_v9(void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs, void **request)
{
	(void)mrs;
	return irecv_any(comm, n, data, sizes, NULL, tags, request);
}
static int ref_irecv_v10(void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs, void **phs, void **request)
{
	(void)mrs, (void)phs;
	return irecv_any(comm, n, data, sizes, NULL, tags, request);
}
static int ref_set_attr(void *ctx, struct net_attr *attr)
{
	(void)ctx, (void)attr;
	return OK;
}

#define TABLE(n, i, p, l, c, a, r, s, q, ...)                                                                          \
	const struct net_v##n ncclNetPlugin_v##n = {                                                                   \
		.name = "Reference", .init = i, .devices = ref_devices, .props = p, .listen = l, .connect = c,         \
		.accept = a, .reg = r, .dmabuf = ref_dmabuf, .dereg = ref_dereg, .isend = s, .irecv = q,               \
		.flush = ref_flush, .test = ref_test, .close_send = close_comm, .close_recv = close_comm,              \
		.close_listen = close_listener, ##__VA_ARGS__}

TABLE(6, ref_init_v6, props_v6, listen_any, connect_any, accept_any, ref_reg_v6, ref_isend_v6, ref_irecv_v6);
TABLE(7, ref_init_v6, props_v7, listen_any, ref_connect_v7, ref_accept_v7, ref_reg_v6, ref_isend_v6, ref_irecv_v6);
TABLE(8, ref_init_v6, props_v8, listen_any, ref_connect_v7, ref_accept_v7, ref_reg_v8, ref_isend_v6, ref_irecv_v6);
TABLE(9, ref_init_v6, props_v9, listen_any, ref_connect_v7, ref_accept_v7, ref_reg_v8, ref_isend_v9, ref_irecv_v9);
TABLE(10, ref_init_v10, props_v9, listen_any, ref_connect_v10, ref_accept_v7, ref_reg_v8, ref_isend_v10, ref_irecv_v10);
TABLE(11, ref_init_v11, props_v11, ref_listen_v11, ref_connect_v11, ref_accept_v7, ref_reg_v8, ref_isend_v10,
      ref_irecv_v10, .finalize = ref_finalize, .set_attr = ref_set_attr);
TABLE(12, ref_init_v11, props_v12, ref_listen_v11, ref_connect_v11, ref_accept_v7, ref_reg_v8, ref_isend_v10,
      ref_irecv_v10, .finalize = ref_finalize, .set_attr = ref_set_attr);
