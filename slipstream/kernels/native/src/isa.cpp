#include "isa.h"

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace slipstream {

// Each is defined by one compilation of kernels.cpp.
extern const KernelSet kernels_portable;
#if defined(SLIPSTREAM_WITH_AVX2)
extern const KernelSet kernels_avx2;
#endif
#if defined(SLIPSTREAM_WITH_AVX512)
extern const KernelSet kernels_avx512;
#endif
#if defined(SLIPSTREAM_WITH_AMX)
extern const KernelSet kernels_amx;
#endif

namespace {

const KernelSet* const kCompiled[] = {
#if defined(SLIPSTREAM_WITH_AMX)
    &kernels_amx,
#endif
#if defined(SLIPSTREAM_WITH_AVX512)
    &kernels_avx512,
#endif
#if defined(SLIPSTREAM_WITH_AVX2)
    &kernels_avx2,
#endif
    &kernels_portable,
};

#if defined(__x86_64__)

bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & 1u << 29);
}

// __builtin_cpu_supports also asks whether the operating system saves the registers.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

// Linux gives a process the tile registers only when it asks, once; threads started later inherit
// the permission.
bool permit_tiles() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool has_amx() {
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  unsigned a, b, c, d;
  if (!has_avx512() || !__builtin_cpu_supports("avx512bf16")) return false;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  return (d & kAmxBf16) && (d & kAmxTile) && permit_tiles();
}

bool runs_here(const char* isa) {
  static const bool amx = has_amx();
  if (!std::strcmp(isa, "amx")) return amx;
  if (!std::strcmp(isa, "avx512")) return has_avx512();
  if (!std::strcmp(isa, "avx2")) return has_avx2();
  return true;
}

#else

bool runs_here(const char*) { return true; }

#endif

}  // namespace

const KernelSet* compiled_kernel_set(const char* isa) {
  for (const KernelSet* set : kCompiled)
    if (!std::strcmp(set->name, isa)) return set;
  return nullptr;
}

const KernelSet* kernel_set(const char* isa) {
  const KernelSet* set = compiled_kernel_set(isa);
  return set && runs_here(isa) ? set : nullptr;
}

const char* best_isa() {
  for (const char* isa : kIsas)
    if (kernel_set(isa)) return isa;
  return nullptr;
}

const char* compiler() {
#if defined(__clang__)
  return __VERSION__;  // begins with "Clang" or a vendor's name
#else
  return "gcc " __VERSION__;
#endif
}

}  // namespace slipstream
