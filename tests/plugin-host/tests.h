/* What can be run. Each is a body for group_run. */
#ifndef PLUGIN_HOST_TESTS_H
#define PLUGIN_HOST_TESTS_H

#include "group.h"

body test_props, test_setup, test_data, test_early, test_oversend, test_window, test_grouped, test_noblock;
body test_allreduce, test_rounds, test_allgather, test_sendrecv;
body test_ll, test_ll128;
body test_abort, test_one_aborts, test_kill_idle, test_kill_busy, test_stop, test_strangers, test_reload, test_leave, test_exit;

/* Whether the plugin's library forbids LL128 across nodes through a tuner; fails on a tuner that makes no sense. */
bool tuner_forbids_ll128(void *dl);

/* Runs --bench; returns the exit code. */
int bench_main(void);

#endif
