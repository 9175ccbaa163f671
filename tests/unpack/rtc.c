/* Compiles the unpack kernel with the vendors' run-time compilers, which need no GPU.
 *   rtc nvrtc LIBRARY SOURCE ARCH...      sm_90: machine code; compute_75: PTX on standard output
 *   rtc hiprtc LIBRARY SOURCE ARCH... */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *prog;
static void *lib;
static int hip;

static void *sym(const char *nv, const char *amd)
{
	void *at = dlsym(lib, hip ? amd : nv);
	if (!at)
		fprintf(stderr, "no %s\n", hip ? amd : nv), exit(1);
	return at;
}

int main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	hip = !strcmp(argv[1], "hiprtc");
	lib = dlopen(argv[2], RTLD_NOW);
	if (!lib)
		return fprintf(stderr, "%s\n", dlerror()), 77;
	FILE *f = fopen(argv[3], "r");
	static char text[65536];
	if (!f || !fread(text, 1, sizeof text - 1, f))
		return 2;
	int (*create)(prog *, const char *, const char *, int, const char **, const char **) =
		sym("nvrtcCreateProgram", "hiprtcCreateProgram");
	int (*compile)(prog, int, const char **) = sym("nvrtcCompileProgram", "hiprtcCompileProgram");
	int (*log_size)(prog, size_t *) = sym("nvrtcGetProgramLogSize", "hiprtcGetProgramLogSize");
	int (*log)(prog, char *) = sym("nvrtcGetProgramLog", "hiprtcGetProgramLog");
	int bad = 0;
	for (int i = 4; i < argc; i++) {
		int ptx = !strncmp(argv[i], "compute_", 8);
		char arch[64];
		snprintf(arch, sizeof arch, hip ? "--offload-arch=%s" : "--gpu-architecture=%s", argv[i]);
		const char *options[] = {arch};
		prog p;
		size_t n = 0;
		if (create(&p, text, "unpack.c", 0, 0, 0))
			return 1;
		if (compile(p, 1, options)) {
			log_size(p, &n);
			char *s = calloc(1, n + 1);
			log(p, s);
			fprintf(stderr, "%s: %s\n", argv[i], s);
			bad = 1;
			continue;
		}
		int (*size)(prog, size_t *) = ptx ? sym("nvrtcGetPTXSize", "hiprtcGetCodeSize") : sym("nvrtcGetCUBINSize", "hiprtcGetCodeSize");
		int (*get)(prog, char *) = ptx ? sym("nvrtcGetPTX", "hiprtcGetCode") : sym("nvrtcGetCUBIN", "hiprtcGetCode");
		if (size(p, &n) || n < 500)
			return fprintf(stderr, "%s: %zu bytes\n", argv[i], n), 1;
		char *code = malloc(n);
		if (get(p, code))
			return 1;
		if (ptx)
			fwrite(code, 1, strlen(code), stdout);
		else
			printf("%s: %zu bytes\n", argv[i], n);
	}
	return bad;
}
