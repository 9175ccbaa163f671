/* Plays NCCL's part against a net plugin. */
#define _GNU_SOURCE
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "group.h"
#include "plant.h"
#include "tests.h"
#include "util.h"

static const struct {
	const char *name;
	body *body;
	int ranks[4]; /* ends with 0 */
	const char *text;
} tests[] = {
	{"props", test_props, {1}, "devices, properties, tuner"},
	{"setup", test_setup, {1}, "connect to itself without accept, several accepts, bad handles"},
	{"leave", test_leave, {1}, "comms left open at finalize"},
	{"exit", test_exit, {1}, "a child ends, then the process, while connections come up"},
	{"data", test_data, {2}, "0 to 8 MiB, posted larger than sent, registering meanwhile"},
	{"early", test_early, {2}, "sends posted before their receives, 0 to 64 MiB"},
	{"oversend", test_oversend, {2}, "sent larger than posted"},
	{"window", test_window, {2}, "256 in flight, tested in random order"},
	{"grouped", test_grouped, {2}, "receives with tags, 32 x 8"},
	{"noblock", test_noblock, {2}, "no call sleeps"},
	{"allreduce", test_allreduce, {2, 4, 8}, "ring, every value checked"},
	{"rounds", test_rounds, {2, 4, 8}, "AllReduce of --size bytes, --rounds times"},
	{"allgather", test_allgather, {2, 4, 8}, "ring, every byte checked"},
	{"sendrecv", test_sendrecv, {2, 4, 8}, "all pairs at once"},
	{"ll", test_ll, {2}, "8-byte words with flags, watched"},
	{"ll128", test_ll128, {2}, "128-byte lines with flags, watched"},
	{"abort", test_abort, {2}, "deregister, unmap, close with requests in flight"},
	{"one-aborts", test_one_aborts, {2}, "the other side hears of it"},
	{"kill-idle", test_kill_idle, {2}, "a silent peer is killed"},
	{"kill-busy", test_kill_busy, {2}, "a peer is killed in mid-transfer"},
	{"stop", test_stop, {2}, "a stopped peer is waited for"},
	{"strangers", test_strangers, {2}, "garbage on the listening ports"},
	{"reload", test_reload, {1}, "100 times load, init, use, finalize, unload"},
};
#define NTESTS ((int)(sizeof tests / sizeof *tests))

_Noreturn static void usage(int code)
{
	FILE *f = code ? stderr : stdout;
	fprintf(f, "usage: plugin-host --plugin FILE.so [--version 6..12|all] [--test NAME|all] [--ranks 1..8] [--quick]\n"
		   "                   [--plant FAULT] [--mem host|cuda] [--offload] [--verbose]\n"
		   "       plugin-host --plugin FILE.so --join ADDRESS:PORT --rank I --ranks N --test allreduce|rounds|...\n"
		   "                   [--size BYTES[K|M]] [--rounds N]\n"
		   "       plugin-host --plugin FILE.so --bench lat|rate|proxy|bw|idle|connect [--version N] [--size BYTES[K|M]]\n"
		   "                   [--window N] [--seconds N]\n"
		   "exit: 0 all passed, 1 a test failed, 2 usage\n"
		   "faults: torn-flag swapped-tags short-size dup corrupt overrun lost-error leak\ntests:\n");
	for (int i = 0; i < NTESTS; i++)
		fprintf(f, "  %-11s %s\n", tests[i].name, tests[i].text);
	exit(code);
}

static long number(const char *text, const char *what, long min, long max)
{
	char *end;
	long n = strtol(text, &end, 10);
	if (*end == 'K' || *end == 'k')
		n *= 1024, end++;
	else if (*end == 'M' || *end == 'm')
		n *= 1024 * 1024, end++;
	if (end == text || *end != '\0' || n < min || n > max) {
		fprintf(stderr, "plugin-host: %s '%s' is not a number from %ld to %ld\n", what, text, min, max);
		exit(2);
	}
	return n;
}

/* Tests that look at the memory while the plugin writes it, or load the plugin more than once. */
static bool host_only(const char *name)
{
	static const char *const names[] = {"rounds", "ll", "ll128", "reload"};
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

static int run_tests(void)
{
	int bad = 0, run = 0;
	const char *wanted = options.test;
	for (int i = 0; i < NTESTS; i++) {
		if (strcmp(wanted, "all") != 0 && strcmp(wanted, tests[i].name) != 0)
			continue;
		if (options.gpu && host_only(tests[i].name))
			continue;
		for (int k = 0; k < 4 && tests[i].ranks[k]; k++) {
			int n = tests[i].ranks[k];
			if (options.ranks && tests[i].ranks[1] && k > 0)
				break;
			if (options.ranks && tests[i].ranks[1])
				n = options.ranks;
			if (options.quick && !options.ranks && n > 4)
				continue;
			options.test = tests[i].name;
			uint64_t start = now_ns();
			int rc = group_run(n, 60, tests[i].body);
			printf("%s v%-2d %-11s %d rank%s %6.2f s\n", rc ? "FAIL" : "ok  ", options.version, tests[i].name, n,
			       n > 1 ? "s" : " ", (double)(now_ns() - start) / 1e9);
			fflush(stdout);
			bad |= rc, run++;
		}
	}
	if (run == 0) {
		fprintf(stderr, "plugin-host: there is no test '%s'\n", wanted);
		usage(2);
	}
	options.test = wanted;
	return bad;
}

int main(int argc, char **argv)
{
	static const struct option known[] = {
		{"plugin", 1, NULL, 'p'}, {"version", 1, NULL, 'v'}, {"test", 1, NULL, 't'},  {"ranks", 1, NULL, 'n'},
		{"plant", 1, NULL, 'f'},  {"bench", 1, NULL, 'b'},   {"size", 1, NULL, 's'},  {"window", 1, NULL, 'w'},
		{"seconds", 1, NULL, 'T'}, {"join", 1, NULL, 'j'},
		{"rank", 1, NULL, 'r'},   {"rounds", 1, NULL, 'R'},  {"quick", 0, NULL, 'q'},  {"verbose", 0, NULL, 'V'}, {"mem", 1, NULL, 'm'}, {"offload", 0, NULL, 'o'}, {"help", 0, NULL, 'h'},
		{NULL, 0, NULL, 0}};
	int first = 12, last = 12;
	options = (struct options){.test = "all", .size = 8, .window = 1, .seconds = 4, .rounds = 4};
	for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
		switch (c) {
		case 'p': options.plugin = optarg; break;
		case 'v':
			if (strcmp(optarg, "all") == 0)
				first = 6, last = 12;
			else
				first = last = (int)number(optarg, "version", 6, 12);
			break;
		case 't': options.test = optarg; break;
		case 'n': options.ranks = (int)number(optarg, "ranks", 1, RANKS_MAX); break;
		case 'f':
			if (!plant_choose(optarg)) {
				fprintf(stderr, "plugin-host: there is no fault '%s'\n", optarg);
				usage(2);
			}
			break;
		case 'b': options.bench = optarg; break;
		case 's': options.size = (size_t)number(optarg, "size", 1, 64 << 20); break;
		case 'w': options.window = (int)number(optarg, "window", 1, 32); break;
		case 'T': options.seconds = (int)number(optarg, "seconds", 1, 600); break;
		case 'j': options.join = optarg; break;
		case 'r': options.rank = (int)number(optarg, "rank", 0, RANKS_MAX - 1); break;
		case 'R': options.rounds = (int)number(optarg, "rounds", 1, 1000000); break;
		case 'q': options.quick = true; break;
		case 'V': net_verbose = true; break;
		case 'm':
			options.gpu = strcmp(optarg, "cuda") == 0;
			if (!options.gpu && strcmp(optarg, "host") != 0)
				usage(2);
			break;
		case 'o': options.offload = options.gpu = true; break;
		case 'h': usage(0);
		default: usage(2);
		}
	}
	if (options.plugin == NULL || optind < argc)
		usage(2);
	if (options.join != NULL && (options.ranks < 2 || options.rank >= options.ranks || strcmp(options.test, "all") == 0))
		usage(2);
	if (access(options.plugin, R_OK) != 0) {
		fprintf(stderr, "plugin-host: cannot read the plugin '%s'\n", options.plugin);
		return 2;
	}
	if (options.bench != NULL) {
		if (options.gpu)
			usage(2);
		options.version = last;
		options.test = NULL;
		return bench_main();
	}
	int bad = 0;
	for (options.version = first; options.version <= last; options.version++)
		bad |= run_tests();
	return bad;
}
