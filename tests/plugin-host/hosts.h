/* Ranks on several hosts: each process is one rank, and what ranks share goes over a TCP connection instead of memory. */
#ifndef PLUGIN_HOST_HOSTS_H
#define PLUGIN_HOST_HOSTS_H

#include "group.h"

/* Joins the other hosts: rank 0 listens at `options.join` (ADDRESS:PORT), the others connect to it. Fails after 30 s. */
void hosts_join(struct rank *);
/* Tells the other hosts of a handle in `shared`. Does nothing where all ranks are on one host. */
void hosts_edge(struct rank *, int edge);
/* Tells them that this rank came to the barrier. */
void hosts_barrier(struct rank *);
/* One arrival at the barrier, of this rank or of another one. */
void barrier_arrive(struct rank *);

#endif
