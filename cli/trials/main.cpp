// The process in which builds first run kernels that may fault (compile/trial_process.h).

#include <cstdio>

#include "api/trial_server.h"

int main(int argc, char** argv) {
  if (argc == 2) return opwright::serve_trials(argv[1]);
  std::fprintf(stderr, "opwright-trials: builds that verify their kernels start this program\n");
  return 2;
}
