// Sixteen float lanes on every machine: the same code, and the same order of sums, whatever the
// width of its registers. Compiled once per instruction set, so everything here is in an unnamed
// namespace: no two instruction sets may share a function.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace slipstream {
namespace {

#if defined(__AVX512F__)
constexpr int kRegisterLanes = 16;
#elif defined(__AVX2__)
constexpr int kRegisterLanes = 8;
#else
constexpr int kRegisterLanes = 4;
#endif

constexpr int kLanes = 16;
constexpr int kRegisters = kLanes / kRegisterLanes;

typedef float FloatRegister __attribute__((vector_size(4 * kRegisterLanes)));
typedef int32_t IntRegister __attribute__((vector_size(4 * kRegisterLanes)));

// One register's a * b + c, rounded once where the machine can.
inline FloatRegister fma_register(FloatRegister a, FloatRegister b, FloatRegister c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

struct Ints {
  IntRegister part[kRegisters];
};

struct Floats {
  FloatRegister part[kRegisters];
};

// f(register index) for each register.
template <typename Vector, typename Function>
inline Vector each_register(Function f) {
  Vector result;
  for (int i = 0; i < kRegisters; ++i) result.part[i] = f(i);
  return result;
}

inline Floats splat(float value) {
  return each_register<Floats>([&](int) { return value - FloatRegister{}; });  // -0 stays -0
}
inline Ints splat(int32_t value) {
  return each_register<Ints>([&](int) { return IntRegister{} + value; });
}

// The same registers at any address.
typedef float FloatsInMemory
    __attribute__((vector_size(4 * kRegisterLanes), aligned(4), may_alias));
typedef int32_t IntsInMemory
    __attribute__((vector_size(4 * kRegisterLanes), aligned(1), may_alias));

inline Floats load(const float* from) {
  return each_register<Floats>(
      [&](int i) { return reinterpret_cast<const FloatsInMemory*>(from)[i]; });
}
inline Ints load_ints(const void* from) {
  return each_register<Ints>([&](int i) { return reinterpret_cast<const IntsInMemory*>(from)[i]; });
}
inline Ints load(const int32_t* from) { return load_ints(from); }
inline void store(float* to, Floats value) {
  for (int i = 0; i < kRegisters; ++i) reinterpret_cast<FloatsInMemory*>(to)[i] = value.part[i];
}
inline void store(int32_t* to, Ints value) {
  for (int i = 0; i < kRegisters; ++i) reinterpret_cast<IntsInMemory*>(to)[i] = value.part[i];
}

#define SLIPSTREAM_LANEWISE(Vector, op)                                          \
  inline Vector operator op(Vector a, Vector b) {                                \
    return each_register<Vector>([&](int i) { return a.part[i] op b.part[i]; }); \
  }
SLIPSTREAM_LANEWISE(Floats, +)
SLIPSTREAM_LANEWISE(Floats, -)
SLIPSTREAM_LANEWISE(Floats, *)
SLIPSTREAM_LANEWISE(Floats, /)
SLIPSTREAM_LANEWISE(Ints, +)
SLIPSTREAM_LANEWISE(Ints, -)
SLIPSTREAM_LANEWISE(Ints, *)
SLIPSTREAM_LANEWISE(Ints, &)
SLIPSTREAM_LANEWISE(Ints, |)
#undef SLIPSTREAM_LANEWISE

inline Ints operator<<(Ints a, int bits) {
  return each_register<Ints>([&](int i) { return a.part[i] << bits; });
}
inline Ints operator>>(Ints a, int bits) {  // keeps the sign
  return each_register<Ints>([&](int i) { return a.part[i] >> bits; });
}

inline Floats fma(Floats a, Floats b, Floats c) {
  return each_register<Floats>(
      [&](int i) { return fma_register(a.part[i], b.part[i], c.part[i]); });
}

inline Ints bits_of(Floats a) {
  return each_register<Ints>([&](int i) { return reinterpret_cast<IntRegister>(a.part[i]); });
}
inline Floats floats_of(Ints a) {
  return each_register<Floats>([&](int i) { return reinterpret_cast<FloatRegister>(a.part[i]); });
}
inline Floats to_floats(Ints a) {
  return each_register<Floats>(
      [&](int i) { return __builtin_convertvector(a.part[i], FloatRegister); });
}
// Towards zero; values must fit.
inline Ints to_ints(Floats a) {
  return each_register<Ints>(
      [&](int i) { return __builtin_convertvector(a.part[i], IntRegister); });
}

// All ones in lanes where a < b.
inline Ints less(Floats a, Floats b) {
  return each_register<Ints>([&](int i) { return IntRegister(a.part[i] < b.part[i]); });
}
inline Floats select(Ints mask, Floats yes, Floats no) {
  return floats_of(each_register<Ints>([&](int i) {
    return (mask.part[i] & reinterpret_cast<IntRegister>(yes.part[i])) |
           (~mask.part[i] & reinterpret_cast<IntRegister>(no.part[i]));
  }));
}
inline Floats maximum(Floats a, Floats b) {  // a if either is NaN; one instruction
  return each_register<Floats>(
      [&](int i) { return a.part[i] < b.part[i] ? b.part[i] : a.part[i]; });
}
inline Floats absolute(Floats a) { return floats_of(bits_of(a) & splat(0x7fffffff)); }

// Sum and maximum of the sixteen lanes, always in this order: halves, quarters, pairs.
template <typename Combine>
inline float reduce(Floats value, Combine combine) {
  typedef float Quad __attribute__((vector_size(16)));
  Quad quads[4];
  std::memcpy(quads, &value, sizeof quads);
  const Quad quad = combine(combine(quads[0], quads[2]), combine(quads[1], quads[3]));
  return combine(combine(quad[0], quad[2]), combine(quad[1], quad[3]));
}
inline float sum_lanes(Floats value) {
  return reduce(value, [](auto a, auto b) { return a + b; });
}
inline float max_lanes(Floats value) {
  return reduce(value, [](auto a, auto b) { return a < b ? b : a; });
}

// Sixteen bfloat16 values as floats, exactly.
inline Floats load_bfloat16(const uint16_t* from) {
#if defined(__AVX512F__)
  __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return floats_of(Ints{{(IntRegister)_mm512_cvtepu16_epi32(halves)}} << 16);
#elif defined(__AVX2__)
  return each_register<Floats>([&](int i) {
    __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  });
#else
  int32_t lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = from[i];
  return floats_of(load(lanes) << 16);
#endif
}

// Rounded to nearest, ties to even; must not be NaN.
inline uint16_t to_bfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
// The bfloat16 bits of each lane, in the low halves.
inline Ints to_bfloat16(Floats value) {
  Ints bits = bits_of(value);
  Ints odd = (bits >> 16) & splat(1);
  return ((bits + splat(0x7fff) + odd) >> 16) & splat(0xffff);
}

// Sixteen finite half-precision values as floats, exactly.
inline Floats load_half(const uint16_t* from) {
#if defined(__AVX512F__)
  return Floats{
      {_mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))}};
#elif defined(__AVX2__)
  return each_register<Floats>([&](int i) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i));
  });
#else
  int32_t lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = from[i];
  Ints half = load(lanes);
  Ints magnitude = (half & splat(0x7fff)) << 13;
  // Multiplying by 2^112 moves the exponent's bias, and makes subnormals normal.
  Floats value = floats_of(magnitude) * splat(5.192296858534828e33f);
  return floats_of(bits_of(value) | ((half & splat(0x8000)) << 16));
#endif
}

// e to the power x, within 2 units in the last place; 0 below -87.3, and exactly 0 for -infinity.
inline Floats exponential(Floats x) {
  const Floats lowest = splat(-87.33654f);
  Ints tiny = less(x, lowest);
  Floats clamped = maximum(select(less(splat(88.0f), x), splat(88.0f), x), lowest);
  // x = n log 2 + r with |r| <= log 2 / 2; adding and taking away 1.5 * 2^23 rounds to integers.
  const Floats shift = splat(12582912.0f);
  Floats n = fma(clamped, splat(1.44269504f), shift) - shift;
  Floats r = fma(n, splat(-0.693359375f), clamped);
  r = fma(n, splat(2.12194440e-4f), r);
  // Cephes' expf polynomial.
  Floats p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(p, r * r, r + splat(1.0f));
  Floats power = floats_of((to_ints(n) + splat(127)) << 23);
  return select(tiny, splat(0.0f), p * power);
}

}  // namespace
}  // namespace slipstream
