// Instruction sets: which this build has kernels for, and which this machine can run.
#pragma once

#include "kernels.h"

namespace slipstream {

// All names, the fastest first. Where the last cannot run, nothing can.
constexpr const char* kIsas[] = {"amx", "avx512", "avx2", "portable"};

// Null where this build has no such kernels; see kernel_set for those that this machine can run.
const KernelSet* compiled_kernel_set(const char* isa);

// The first of kIsas that kernel_set offers.
const char* best_isa();

// What compiled this, such as "gcc 12.2.0".
const char* compiler();

}  // namespace slipstream
