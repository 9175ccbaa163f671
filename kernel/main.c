// SPDX-License-Identifier: GPL-2.0
/*
 * linkspan: two hosts and a Thunderbolt or USB4 cable.
 *
 * This file: the module, its service driver, the devices, and who is allowed.
 *
 * Locks: ls_links_lock guards the list of links and is taken under no other
 * lock; ls_allow_lock guards the allow-list and the key, and is a leaf.
 */
#include <linux/idr.h>
#include <linux/jhash.h>
#include <linux/module.h>
#include <linux/hex.h>
#include <linux/rcupdate.h>
#include <linux/siphash.h>
#include <linux/slab.h>

#include "linkspan.h"

#define LS_DEVICES	64
#define LS_ALLOWED	64

struct workqueue_struct *ls_wq, *ls_io_wq;
/* Of our directory of properties; any but the root has one. */
static const uuid_t ls_dir_uuid =
	UUID_INIT(0xd3a1f6c2, 0x7b0e, 0x45d8, 0x9f, 0x21, 0x86, 0xe4, 0x0c, 0x5a, 0x31, 0x7d);

static struct tb_property_dir *ls_dir;
static dev_t ls_devt;
static DEFINE_IDA(ls_ida);
static LIST_HEAD(ls_links);
static DEFINE_MUTEX(ls_links_lock);

static DEFINE_MUTEX(ls_allow_lock);
static uuid_t ls_allow[LS_ALLOWED];
static unsigned int ls_nallow;
static bool ls_allow_any;
static siphash_key_t ls_key;
static bool ls_have_key;

unsigned int ls_ring_size = 1024;
unsigned int ls_ring_pairs = LS_PAIRS;
unsigned int ls_throttling_ns = 8192;

static int ls_ring_size_set(const char *val, const struct kernel_param *kp)
{
	unsigned int size;
	int ret = kstrtouint(val, 0, &size);

	if (ret)
		return ret;
	if (size < 64 || size > 16384 || !is_power_of_2(size))
		return -EINVAL;
	*(unsigned int *)kp->arg = size;
	return 0;
}

static const struct kernel_param_ops ls_ring_size_ops = {
	.set = ls_ring_size_set,
	.get = param_get_uint,
};
module_param_cb(ring_size, &ls_ring_size_ops, &ls_ring_size, 0644);
MODULE_PARM_DESC(ring_size, "entries of the rings of links to come that carry data only: a power of two, 64 to 16384 (default 1024)");
module_param_named(ring_pairs, ls_ring_pairs, uint, 0644);
MODULE_PARM_DESC(ring_pairs, "most ring pairs of links to come, of 4 (default 4)");
module_param_named(throttling_ns, ls_throttling_ns, uint, 0644);
MODULE_PARM_DESC(throttling_ns, "shortest time between two interrupts of a ring, since Linux 7.2 (default 8192)");

const struct ls_client *const ls_clients[LS_MODES] = {
	[LS_MODE_DIRECT] = &ls_direct,
	[LS_MODE_NETWORK] = &ls_network,
};

static unsigned int ls_mode;

static int ls_mode_of(const char *val)
{
	int i;

	for (i = 0; i < LS_MODES; i++) {
		if (sysfs_streq(val, ls_clients[i]->name))
			return i;
	}
	return -EINVAL;
}

static int ls_mode_set(const char *val, const struct kernel_param *kp)
{
	int mode = ls_mode_of(val);

	if (mode < 0)
		return mode;
	WRITE_ONCE(ls_mode, mode);
	return 0;
}

static int ls_mode_get(char *buf, const struct kernel_param *kp)
{
	return scnprintf(buf, PAGE_SIZE, "%s\n", ls_clients[READ_ONCE(ls_mode)]->name);
}

static const struct kernel_param_ops ls_mode_ops = { .set = ls_mode_set, .get = ls_mode_get };
module_param_cb(mode, &ls_mode_ops, NULL, 0644);
MODULE_PARM_DESC(mode, "of hosts that are plugged in from now on: direct, for programs with the device, or network (default: direct; see also the device's attribute mode)");

static void ls_kick_all(void)
{
	struct ls_link *lk;

	mutex_lock(&ls_links_lock);
	list_for_each_entry(lk, &ls_links, links) {
		/* Under login: one that is being removed is not kicked after its work was cancelled. */
		mutex_lock(&lk->login);
		ls_kick(lk);
		mutex_unlock(&lk->login);
	}
	mutex_unlock(&ls_links_lock);
}

static int ls_allow_set(const char *val, const struct kernel_param *kp)
{
	char *copy, *rest, *word;
	uuid_t *list;
	unsigned int n = 0;
	bool any = false;
	int ret = 0;

	copy = kstrdup(val, GFP_KERNEL);
	list = kcalloc(LS_ALLOWED, sizeof(*list), GFP_KERNEL);
	if (!copy || !list) {
		ret = -ENOMEM;
		goto out;
	}
	rest = strim(copy);
	while ((word = strsep(&rest, ","))) {
		if (!*word)
			continue;
		if (!strcmp(word, "any")) {
			any = true;
			continue;
		}
		if (n == LS_ALLOWED) {
			ret = -ENOSPC;
			goto out;
		}
		ret = uuid_parse(word, &list[n++]);
		if (ret)
			goto out;
	}
	mutex_lock(&ls_allow_lock);
	memcpy(ls_allow, list, sizeof(ls_allow));
	ls_nallow = n;
	ls_allow_any = any;
	mutex_unlock(&ls_allow_lock);
	ls_kick_all();
out:
	kfree(list);
	kfree(copy);
	return ret;
}

static int ls_allow_get(char *buf, const struct kernel_param *kp)
{
	unsigned int i;
	int n = 0;

	mutex_lock(&ls_allow_lock);
	if (ls_allow_any)
		n += scnprintf(buf, PAGE_SIZE, "any");
	for (i = 0; i < ls_nallow; i++)
		n += scnprintf(buf + n, PAGE_SIZE - n, "%s%pUb", n ? "," : "", &ls_allow[i]);
	n += scnprintf(buf + n, PAGE_SIZE - n, "\n");
	mutex_unlock(&ls_allow_lock);
	return n;
}

static const struct kernel_param_ops ls_allow_ops = { .set = ls_allow_set, .get = ls_allow_get };
module_param_cb(allow, &ls_allow_ops, NULL, 0644);
MODULE_PARM_DESC(allow, "UUIDs of hosts that may log in, separated by commas, or any (default: none; see also the device's attribute allowed)");

static int ls_key_set(const char *val, const struct kernel_param *kp)
{
	size_t len = strcspn(val, "\n");
	siphash_key_t key = {};

	if (len && (len != 2 * sizeof(key) || hex2bin((u8 *)&key, val, sizeof(key))))
		return -EINVAL;
	mutex_lock(&ls_allow_lock);
	ls_key = key;
	ls_have_key = len;
	mutex_unlock(&ls_allow_lock);
	memzero_explicit(&key, sizeof(key));
	ls_kick_all();
	return 0;
}

static const struct kernel_param_ops ls_key_ops = { .set = ls_key_set };
module_param_cb(key, &ls_key_ops, NULL, 0200);
MODULE_PARM_DESC(key, "32 hexadecimal digits that hosts must share to log in (default: none)");

/* Whether there is a key, and what it makes of these bytes. */
bool ls_prove(const void *data, size_t len, u64 proof[2])
{
	siphash_key_t other;
	bool yes;

	mutex_lock(&ls_allow_lock);
	yes = ls_have_key;
	proof[0] = yes ? siphash(data, len, &ls_key) : 0;
	other.key[0] = ls_key.key[0];
	other.key[1] = ~ls_key.key[1];
	proof[1] = yes ? siphash(data, len, &other) : 0;
	mutex_unlock(&ls_allow_lock);
	memzero_explicit(&other, sizeof(other));
	return yes;
}

/* With a key, the list may be empty: who has the key may log in. */
bool ls_allowed(const uuid_t *uuid)
{
	bool yes;
	unsigned int i;

	mutex_lock(&ls_allow_lock);
	yes = ls_allow_any || (ls_have_key && !ls_nallow);
	for (i = 0; !yes && i < ls_nallow; i++)
		yes = uuid_equal(uuid, &ls_allow[i]);
	mutex_unlock(&ls_allow_lock);
	return yes;
}

/* The link to this peer, with a reference. */
struct ls_link *ls_find(u64 route, const uuid_t *from, const uuid_t *to)
{
	struct ls_link *lk, *found = NULL;

	mutex_lock(&ls_links_lock);
	list_for_each_entry(lk, &ls_links, links) {
		if (lk->xd->route == route && uuid_equal(lk->xd->remote_uuid, from) &&
		    uuid_equal(lk->xd->local_uuid, to)) {
			get_device(&lk->dev);
			found = lk;
			break;
		}
	}
	mutex_unlock(&ls_links_lock);
	return found;
}

static struct ls_link *to_link(struct device *dev)
{
	return container_of(dev, struct ls_link, dev);
}

static ssize_t peer_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%pUb\n", to_link(dev)->xd->remote_uuid);
}
static DEVICE_ATTR_RO(peer);

/* Programs for the device do not take a link for theirs that is up for the network. */
u32 ls_shown_state(const struct ls_link *lk)
{
	u32 state = READ_ONCE(lk->state);

	if (state == LS_STATE_UP && READ_ONCE(lk->mode) == LS_MODE_NETWORK)
		return LS_STATE_NETWORK;
	return state == LS_STATE_LOGIN && READ_ONCE(lk->modes_differ) ? LS_STATE_MODES : state;
}

static ssize_t state_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	static const char * const names[] = {
		"waiting", "login", "starting", "ready", "up", "gone", "network",
		"refused: the other host is in the other mode",
	};
	u32 state = ls_shown_state(to_link(dev));

	return sysfs_emit(buf, "%s\n", state < ARRAY_SIZE(names) ? names[state] : "?");
}
static DEVICE_ATTR_RO(state);

/* A number that both hosts have for this cable and no other one between them, and which end of it this is. */
static ssize_t cable_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct {
		uuid_t host;
		u64 route;
	} ends[2];
	struct ls_link *lk = to_link(dev);
	bool known;
	int order;

	mutex_lock(&lk->login);
	known = lk->peer_session;
	ends[0].host = *lk->xd->local_uuid;
	ends[0].route = lk->xd->route;
	ends[1].host = *lk->xd->remote_uuid;
	ends[1].route = lk->peer_route;
	mutex_unlock(&lk->login);
	order = memcmp(&ends[0], &ends[1], sizeof(ends[0]));
	if (!known || !order)
		return -ENODATA;
	if (order > 0)
		swap(ends[0], ends[1]);
	return sysfs_emit(buf, "%08x %d\n", jhash2((u32 *)ends, sizeof(ends) / 4, 0), order > 0);
}
static DEVICE_ATTR_RO(cable);

static ssize_t allowed_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct ls_link *lk = to_link(dev);
	bool yes = !lk->denied && (lk->forced || ls_allowed(lk->xd->remote_uuid));

	return sysfs_emit(buf, "%d\n", yes);
}

static ssize_t allowed_store(struct device *dev, struct device_attribute *attr, const char *buf, size_t n)
{
	struct ls_link *lk = to_link(dev);
	bool yes;
	int ret = kstrtobool(buf, &yes);

	if (ret)
		return ret;
	mutex_lock(&lk->login);
	lk->forced = yes;
	lk->denied = !yes;
	/* Under login: a link that is being removed is not kicked after its work was cancelled. */
	ls_kick(lk);
	mutex_unlock(&lk->login);
	return n;
}
static DEVICE_ATTR_RW(allowed);

static ssize_t mode_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", ls_clients[READ_ONCE(to_link(dev)->mode)]->name);
}

static ssize_t mode_store(struct device *dev, struct device_attribute *attr, const char *buf, size_t n)
{
	struct ls_link *lk = to_link(dev);
	int ret, mode = ls_mode_of(buf);

	if (mode < 0)
		return mode;
	if (mutex_lock_interruptible(&lk->mode_lock))
		return -EINTR;
	ret = mode == LS_MODE_NETWORK ? ls_net_add(lk) : 0;
	if (!ret) {
		mutex_lock(&lk->login);
		ls_login_mode(lk, mode);
		mutex_unlock(&lk->login);
	}
	/* The interface goes when its rings have gone. */
	if (!ret && mode != LS_MODE_NETWORK && lk->net) {
		ret = wait_event_killable(lk->wait, READ_ONCE(lk->client) != &ls_network);
		if (!ret)
			ls_net_remove(lk);
	}
	mutex_unlock(&lk->mode_lock);
	return ret ?: n;
}
static DEVICE_ATTR_RW(mode);

static struct attribute *ls_attrs[] = {
	&dev_attr_peer.attr,
	&dev_attr_state.attr,
	&dev_attr_allowed.attr,
	&dev_attr_mode.attr,
	&dev_attr_cable.attr,
	NULL,
};
ATTRIBUTE_GROUPS(ls);

static char *ls_devnode(const struct device *dev, umode_t *mode)
{
	if (mode)
		*mode = 0660;
	return kasprintf(GFP_KERNEL, "linkspan/%d", MINOR(dev->devt) - MINOR(ls_devt));
}

static const struct class ls_class = {
	.name = "linkspan",
	.devnode = ls_devnode,
	.dev_groups = ls_groups,
};

static void ls_release(struct device *dev)
{
	struct ls_link *lk = to_link(dev);

	ida_free(&ls_ida, lk->index);
	tb_xdomain_put(lk->xd);
	kvfree(lk->chans);
	kfree(lk);
}

static int ls_probe(struct tb_service *svc)
{
	struct ls_link *lk;
	int ret;

	lk = kzalloc(sizeof(*lk), GFP_KERNEL);
	if (!lk)
		return -ENOMEM;
	lk->chans = kvcalloc(LS_CHANNELS, sizeof(*lk->chans), GFP_KERNEL);
	if (!lk->chans) {
		kfree(lk);
		return -ENOMEM;
	}
	lk->index = ida_alloc_max(&ls_ida, LS_DEVICES - 1, GFP_KERNEL);
	if (lk->index < 0) {
		ret = lk->index;
		kvfree(lk->chans);
		kfree(lk);
		return ret;
	}
	lk->xd = tb_xdomain_get(tb_service_parent(svc));
	mutex_init(&lk->login);
	mutex_init(&lk->io);
	mutex_init(&lk->teardown);
	mutex_init(&lk->mode_lock);
	lk->mode = READ_ONCE(ls_mode);
	init_waitqueue_head(&lk->wait);
	ls_flow_init(lk);
	ls_login_init(lk);

	device_initialize(&lk->dev);
	lk->dev.class = &ls_class;
	lk->dev.parent = &svc->dev;
	lk->dev.release = ls_release;
	lk->dev.devt = MKDEV(MAJOR(ls_devt), MINOR(ls_devt) + lk->index);
	ret = dev_set_name(&lk->dev, "linkspan%d", lk->index);
	if (ret)
		goto err;
	cdev_init(&lk->cdev, &ls_fops);
	lk->cdev.owner = THIS_MODULE;
	ret = lk->mode == LS_MODE_NETWORK ? ls_net_add(lk) : 0;
	if (ret)
		goto err;
	ret = cdev_device_add(&lk->cdev, &lk->dev);
	if (ret)
		goto err_net;
	tb_service_set_drvdata(svc, lk);
	ls_debug_add(lk);
	mutex_lock(&ls_links_lock);
	list_add_tail(&lk->links, &ls_links);
	mutex_unlock(&ls_links_lock);
	ls_kick(lk);
	return 0;
err_net:
	ls_net_remove(lk);
err:
	put_device(&lk->dev);
	return ret;
}

/* Linux before 7.2 hands over the matched id. */
static int __maybe_unused ls_probe_id(struct tb_service *svc, const struct tb_service_id *id)
{
	return ls_probe(svc);
}

static void ls_remove(struct tb_service *svc)
{
	struct ls_link *lk = tb_service_get_drvdata(svc);

	/* It may have gone while we slept. */
	clear_bit(LS_ASLEEP, &lk->flags);
	mutex_lock(&ls_links_lock);
	list_del_init(&lk->links);
	mutex_unlock(&ls_links_lock);
	ls_debug_remove(lk);
	ls_login_stop(lk, !lk->xd->is_unplugged);
	cdev_device_del(&lk->cdev, &lk->dev);
	/* Nobody sets the mode any more. */
	ls_net_remove(lk);
	put_device(&lk->dev);
}

static void ls_shutdown(struct tb_service *svc)
{
	struct ls_link *lk = tb_service_get_drvdata(svc);

	if (lk)
		ls_login_stop(lk, !lk->xd->is_unplugged);
}

static int ls_suspend(struct device *dev)
{
	struct ls_link *lk = tb_service_get_drvdata(tb_to_service(dev));

	set_bit(LS_ASLEEP, &lk->flags);
	ls_login_stop(lk, false);
	return 0;
}

static int ls_resume(struct device *dev)
{
	struct ls_link *lk = tb_service_get_drvdata(tb_to_service(dev));

	clear_bit(LS_ASLEEP, &lk->flags);
	clear_bit(LS_GONE, &lk->flags);
	ls_kick(lk);
	return 0;
}

static DEFINE_SIMPLE_DEV_PM_OPS(ls_pm, ls_suspend, ls_resume);

static const struct tb_service_id ls_ids[] = {
	{ TB_SERVICE("linkspan", 1) },
	{ },
};
MODULE_DEVICE_TABLE(tbsvc, ls_ids);

static struct tb_service_driver ls_driver = {
	.driver = {
		.owner = THIS_MODULE,
		.name = "linkspan",
		.pm = pm_sleep_ptr(&ls_pm),
	},
	.probe = __builtin_choose_expr(__same_type(((struct tb_service_driver *)0)->probe, &ls_probe),
				       ls_probe, ls_probe_id),
	.remove = ls_remove,
	.shutdown = ls_shutdown,
	.id_table = ls_ids,
};

static void ls_unregister_handler(void)
{
	tb_unregister_protocol_handler(&ls_handler);
	/*
	 * The core calls a handler without a lock, so one may still be on its
	 * way into or out of ours. It sleeps nowhere outside of it.
	 */
	synchronize_rcu_tasks();
	while (atomic_read(&ls_in_handler))
		schedule_timeout_uninterruptible(1);
	synchronize_rcu_tasks();
}

static int __init ls_init(void)
{
	int ret;

	ls_wq = alloc_workqueue("linkspan", WQ_UNBOUND, 0);
	if (!ls_wq)
		return -ENOMEM;
	ret = -ENOMEM;
	ls_io_wq = alloc_workqueue("linkspan-io", WQ_UNBOUND | WQ_HIGHPRI, 0);
	if (!ls_io_wq)
		goto err_wq;
	ret = alloc_chrdev_region(&ls_devt, 0, LS_DEVICES, "linkspan");
	if (ret)
		goto err_io_wq;
	ret = class_register(&ls_class);
	if (ret)
		goto err_region;
	ret = ls_memory_init();
	if (ret)
		goto err_class;
	ls_debug_init();
	ret = -ENOMEM;
	ls_dir = tb_property_create_dir(&ls_dir_uuid);
	if (!ls_dir)
		goto err_debug;
	tb_property_add_immediate(ls_dir, "prtcid", 1);
	tb_property_add_immediate(ls_dir, "prtcvers", LS_ABI_VERSION);
	tb_property_add_immediate(ls_dir, "prtcrevs", 1);
	tb_property_add_immediate(ls_dir, "prtcstns", 0);
	ret = tb_register_protocol_handler(&ls_handler);
	if (ret)
		goto err_dir;
	/* Other hosts hear of it, and log in, before there are links here: they try again. */
	ret = tb_register_property_dir("linkspan", ls_dir);
	if (ret)
		goto err_handler;
	ret = tb_register_service_driver(&ls_driver);
	if (ret)
		goto err_property;
	return 0;

err_property:
	tb_unregister_property_dir("linkspan", ls_dir);
err_handler:
	ls_unregister_handler();
err_dir:
	tb_property_free_dir(ls_dir);
err_debug:
	ls_debug_exit();
	ls_memory_exit();
err_class:
	class_unregister(&ls_class);
err_region:
	unregister_chrdev_region(ls_devt, LS_DEVICES);
err_io_wq:
	destroy_workqueue(ls_io_wq);
err_wq:
	destroy_workqueue(ls_wq);
	return ret;
}
module_init(ls_init);

static void __exit ls_exit(void)
{
	tb_unregister_property_dir("linkspan", ls_dir);
	tb_property_free_dir(ls_dir);
	tb_unregister_service_driver(&ls_driver);
	ls_unregister_handler();
	ls_debug_exit();
	/* What a link has left to do holds the link, and uses all that follows. */
	destroy_workqueue(ls_wq);
	ls_memory_exit();
	destroy_workqueue(ls_io_wq);
	class_unregister(&ls_class);
	unregister_chrdev_region(ls_devt, LS_DEVICES);
	ida_destroy(&ls_ida);
}
module_exit(ls_exit);

MODULE_AUTHOR("The linkspan authors");
MODULE_DESCRIPTION("linkspan: registered memory over Thunderbolt and USB4 cables");
MODULE_LICENSE("GPL");
MODULE_VERSION("1");
