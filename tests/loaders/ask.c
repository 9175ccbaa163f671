/* Has a library of NCCL's interface look for its network plugin, as a program that makes a communicator does: as far as that goes
 * without a GPU. The library's file is the argument. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef struct {
	char internal[128]; /* NCCL_UNIQUE_ID_BYTES of nccl.h */
} id_t128;

int main(int argc, char **argv)
{
	void *lib = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	if (!lib) {
		fprintf(stderr, "%s\n", argc > 1 ? dlerror() : "which library?");
		return 2;
	}
	int (*version)(int *) = (int (*)(int *))dlsym(lib, "ncclGetVersion");
	int (*unique)(id_t128 *) = (int (*)(id_t128 *))dlsym(lib, "ncclGetUniqueId");
	int (*init)(void **, int, id_t128, int) = (int (*)(void **, int, id_t128, int))dlsym(lib, "ncclCommInitRank");
	if (!version || !unique || !init) {
		fprintf(stderr, "%s: not NCCL's interface\n", argv[1]);
		return 2;
	}
	int number = 0;
	void *comm = NULL;
	id_t128 id;
	memset(&id, 0, sizeof id);
	version(&number);
	int made = unique(&id);
	int joined = init(&comm, 1, id, 0);
	printf("version %d, ncclGetUniqueId %d, ncclCommInitRank %d\n", number, made, joined);
	return 0;
}
