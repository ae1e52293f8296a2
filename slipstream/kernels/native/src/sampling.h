// The token that a row of logits emits; sampling_rows.py and noise.py define it. Compiled once per
// instruction set.
//
// Drawing needs no list of candidates: a token wins when its scaled logit plus its noise is
// largest, and nearly all are ruled out sixteen at a time by a bound that is cheaper than their
// noise.
#pragma once

#include <cfloat>
#include <cmath>

#include "kernels.h"
#include "truncate.h"
#include "vector.h"

namespace slipstream {
namespace {

alignas(64) constexpr int32_t kLaneIds[kLanes] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                  8, 9, 10, 11, 12, 13, 14, 15};

inline Ints inverse(Ints bits) {
  return each_register<Ints>([&](int i) { return ~bits.part[i]; });
}

inline bool any(Ints mask) {
  IntRegister some = mask.part[0];
  for (int i = 1; i < kRegisters; ++i) some |= mask.part[i];
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask((__m512i)some, (__m512i)some) != 0;
#elif defined(__AVX2__)
  return !_mm256_testz_si256((__m256i)some, (__m256i)some);
#else
  int64_t halves[2];
  std::memcpy(halves, &some, sizeof halves);
  return (halves[0] | halves[1]) != 0;
#endif
}

// Sixteen logits from `first` on; after the last one follow minus infinities.
inline Floats load_logits(const float* logits, int vocabulary, int first) {
  if (first + kLanes <= vocabulary) return load(logits + first);
  float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i)
    lanes[i] = first + i < vocabulary ? logits[first + i] : -INFINITY;
  return load(lanes);
}

// The largest logit's id, ties to the lowest. NaN is never the largest; without any other, 0.
inline int32_t argmax(const float* logits, int vocabulary) {
  constexpr int kChunk = 1024;
  constexpr int kChains = 4;  // hide the latency of one maximum
  float best = -INFINITY;
  int best_chunk = 0;
  for (int chunk = 0; chunk < vocabulary; chunk += kChunk) {
    const int end = chunk + kChunk < vocabulary ? chunk + kChunk : vocabulary;
    Floats largest[kChains];
    for (Floats& chain : largest) chain = splat(-INFINITY);
    int i = chunk;
    for (; i + kChains * kLanes <= end; i += kChains * kLanes)
      for (int c = 0; c < kChains; ++c)
        largest[c] = maximum(largest[c], load(logits + i + c * kLanes));
    for (; i < end; i += kLanes) largest[0] = maximum(largest[0], load_logits(logits, end, i));
    const float value =
        max_lanes(maximum(maximum(largest[0], largest[1]), maximum(largest[2], largest[3])));
    if (value > best) {
      best = value;
      best_chunk = chunk;
    }
  }
  for (int i = best_chunk; i < vocabulary; ++i)
    if (logits[i] == best) return i;
  return 0;
}

// One 32-bit word in each 64-bit lane; products of words fill the lane.
typedef uint64_t WordRegister __attribute__((vector_size(4 * kRegisterLanes)));

// Products of the low halves of the lanes, exact in 64 bits.
inline WordRegister multiply_words(WordRegister a, uint32_t factor) {
#if defined(__AVX512F__)
  return (WordRegister)_mm512_maskz_mul_epu32(0xff, (__m512i)a, _mm512_set1_epi64(factor));
#elif defined(__AVX2__)
  return (WordRegister)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(factor));
#else
  return (a & 0xffffffff) * uint64_t(factor);
#endif
}

// The first word of Philox-4x32-10 (Salmon et al., 2011) for counters (c0, position, 0, 0), in the
// low halves of the lanes; the high halves are arbitrary, in `c0` and in the result.
inline WordRegister philox_register(WordRegister c0, int32_t position, uint64_t key) {
  WordRegister c1 = WordRegister{} + uint32_t(position), c2 = {}, c3 = {};
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const WordRegister product0 = multiply_words(c0, 0xd2511f53);
    const WordRegister product1 = multiply_words(c2, 0xcd9e8d57);
    c0 = (product1 >> 32) ^ c1 ^ uint64_t(k0);
    c1 = product1;
    c2 = (product0 >> 32) ^ c3 ^ uint64_t(k1);
    c3 = product0;
    k0 += 0x9e3779b9;
    k1 += 0xbb67ae85;
  }
  return c0;
}

inline Ints philox(Ints token_ids, int32_t position, uint64_t key) {
  return each_register<Ints>([&](int i) {
    const WordRegister ids = (WordRegister)token_ids.part[i];
    const WordRegister even = philox_register(ids, position, key) & 0xffffffff;
    const WordRegister odd = philox_register(ids >> 32, position, key) << 32;
    return (IntRegister)(even | odd);
  });
}

// Standard Gumbel noise from a uniform (word + 1/2) / 2^32.
inline double gumbel(uint32_t word) { return -std::log(-std::log((word + 0.5) * 0x1p-32)); }

// Which scaled logits may reach `score` with their noise. A uniform u gives the noise -log(-log u),
// which lifts a token there only when exp(scaled - score) >= -log u, and -log u >= 1 - u. The
// factor covers the floats' rounding.
inline Ints may_reach(Floats scaled, Ints noise, double score) {
  const Floats reach = exponential(scaled - splat(float(score))) * splat(1.0001f);
  const Ints gap = (inverse(noise) >> 1) & splat(0x7fffffff);  // (1 - u) * 2^31, rounded down
  return inverse(less(reach, to_floats(gap) * splat(0x1p-31f)));
}

// Draws among the tokens up to a cut: the largest scaled logit plus noise wins.
class Draw {
 public:
  Draw(const float* logits, int vocabulary, const Sampling& sampling, const Scale& scale,
       const Ranked& cut, int32_t top)
      : logits_(logits),
        vocabulary_(vocabulary),
        sampling_(sampling),
        scale_(scale),
        cut_(cut),
        largest_(logits[top]),
        winner_{-INFINITY, top} {
    int32_t words[kLanes];
    store(words, philox(splat(top), sampling.position, sampling.seed));
    consider(top, words[0]);  // a good bound from the start
  }

  int32_t run() {
    const Floats least = splat(least_logit(scale_, cut_.value));
    for (int first = 0; first < vocabulary_; first += kLanes) {
      const Floats logits = load_logits(logits_, vocabulary_, first);
      const Ints likely = inverse(less(logits, least));
      if (any(likely)) consider_block(first, logits, likely);
    }
    return winner_.id;
  }

 private:
  void consider_block(int first, Floats logits, Ints likely) {
    const Floats scaled = (logits - splat(largest_)) / splat(float(scale_.temperature));
    const Ints noise = philox(splat(first) + load(kLaneIds), sampling_.position, sampling_.seed);
    likely = likely & may_reach(scaled, noise, winner_.value);
    if (!any(likely)) return;
    int32_t mask[kLanes], words[kLanes];
    store(mask, likely);
    store(words, noise);
    for (int i = 0; i < kLanes; ++i)
      if (mask[i] && first + i < vocabulary_) consider(first + i, words[i]);
  }

  void consider(int32_t id, int32_t word) {
    const Ranked token{scaled_logit(scale_, logits_[id]), id};
    if (!(token.value >= cut_.value) || ranks_before(cut_, token)) return;  // NaN fails the first
    const Ranked candidate{token.value + gumbel(uint32_t(word)), id};
    if (ranks_before(candidate, winner_)) winner_ = candidate;
  }

  const float* logits_;
  int vocabulary_;
  const Sampling& sampling_;
  const Scale& scale_;
  const Ranked& cut_;
  float largest_;
  Ranked winner_;
};

// The last token that may be drawn.
inline Ranked cut_of(const float* logits, int vocabulary, const Sampling& sampling,
                     const Scale& scale) {
  Ranked cut{-kNoiseRange, INT32_MAX};
  if (sampling.top_k > 0 || sampling.top_p < 1) cut = truncate(logits, vocabulary, sampling, scale);
  if (sampling.min_p > 0 && std::log(sampling.min_p) > cut.value)
    cut = {std::log(sampling.min_p), INT32_MAX};
  return cut;
}

inline int32_t sample(const float* logits, int vocabulary, const Sampling& sampling) {
  const int32_t top = argmax(logits, vocabulary);
  if (sampling.temperature == 0) return top;
  const Scale scale{sampling.temperature, logits[top] / sampling.temperature};
  if (!(std::fabs(scale.top) <= DBL_MAX)) return top;
  const Ranked cut = cut_of(logits, vocabulary, sampling, scale);
  return Draw(logits, vocabulary, sampling, scale, cut, top).run();
}

// Keeps the best tokens among those up to a cut, ranked by their scaled logit plus noise; greedy
// requests have no noise.
class Ranking {
 public:
  Ranking(const float* logits, int vocabulary, const int32_t* ids, const Sampling& sampling,
          const Scale& scale, const Ranked& cut, int count)
      : logits_(logits),
        vocabulary_(vocabulary),
        ids_(ids),
        sampling_(sampling),
        scale_(scale),
        cut_(cut),
        count_(count),
        noisy_(sampling.temperature != 0),
        least_(least_logit(scale, cut.value)) {}

  // How many were found; best() has them, with their places in the logits.
  int run() {
    for (int first = 0; first < vocabulary_; first += kLanes) {
      const Floats logits = load_logits(logits_, vocabulary_, first);
      const Ints likely = inverse(less(logits, splat(least_)));
      if (any(likely)) consider_block(first, logits, likely);
    }
    return found_;
  }

  const Ranked* best() const { return best_; }

 private:
  void consider_block(int first, Floats logits, Ints likely) {
    int32_t mask[kLanes], words[kLanes] = {};
    if (noisy_) {
      int32_t ids[kLanes];
      for (int i = 0; i < kLanes; ++i) ids[i] = first + i < vocabulary_ ? ids_[first + i] : 0;
      const Ints noise = philox(load(ids), sampling_.position, sampling_.seed);
      if (found_ == count_) {
        const Floats top = splat(float(scale_.top * scale_.temperature));
        const Floats scaled = (logits - top) / splat(float(scale_.temperature));
        likely = likely & may_reach(scaled, noise, best_[count_ - 1].value);
        if (!any(likely)) return;
      }
      store(words, noise);
    }
    store(mask, likely);
    for (int i = 0; i < kLanes; ++i)
      if (mask[i] && first + i < vocabulary_) consider(first + i, uint32_t(words[i]));
  }

  void consider(int32_t at, uint32_t word) {
    const Ranked token{scaled_logit(scale_, logits_[at]), at};
    if (!(token.value >= cut_.value) || ranks_before(cut_, token)) return;  // NaN fails the first
    const Ranked candidate{noisy_ ? token.value + gumbel(word) : token.value, at};
    if (found_ == count_ && !ranks_before(candidate, best_[count_ - 1])) return;
    int place = found_ < count_ ? found_++ : count_ - 1;
    for (; place > 0 && ranks_before(candidate, best_[place - 1]); --place)
      best_[place] = best_[place - 1];
    best_[place] = candidate;
    if (found_ == count_ && !noisy_)
      least_ = std::fmax(least_, least_logit(scale_, best_[count_ - 1].value));
  }

  const float* logits_;
  int vocabulary_;
  const int32_t* ids_;
  const Sampling& sampling_;
  const Scale& scale_;
  const Ranked& cut_;
  int count_;
  bool noisy_;
  float least_;  // logits below it are out
  int found_ = 0;
  Ranked best_[kMostRanked];
};

// Sum of exp(logit - top).
inline double weight_of_all(const float* logits, int vocabulary, float top) {
  Floats sum = splat(0.0f);
  for (int first = 0; first < vocabulary; first += kLanes)
    sum = sum + exponential(load_logits(logits, vocabulary, first) - splat(top));
  return sum_lanes(sum);
}

inline void rank(const float* logits, int vocabulary, const int32_t* ids, const Sampling& sampling,
                 int count, int32_t* tokens, float* logprobs) {
  for (int i = 0; i < count; ++i) {
    tokens[i] = -1;
    logprobs[i] = -INFINITY;
  }
  const float top = logits[argmax(logits, vocabulary)];
  const bool greedy = sampling.temperature == 0;
  const Scale scale{greedy ? 1 : sampling.temperature, top / (greedy ? 1 : sampling.temperature)};
  if (!(std::fabs(scale.top) <= DBL_MAX)) return;
  const Ranked cut =
      greedy ? Ranked{-INFINITY, INT32_MAX} : cut_of(logits, vocabulary, sampling, scale);
  Ranking ranking(logits, vocabulary, ids, sampling, scale, cut, count);
  const int found = ranking.run();
  double total = weight_of_all(logits, vocabulary, top);
  for (int i = 0; i < found; ++i) {
    const Ranked& token = ranking.best()[i];
    total += std::exp(token.value * scale.temperature) - std::exp(double(logits[token.id]) - top);
  }
  for (int i = 0; i < found; ++i) {
    const Ranked& token = ranking.best()[i];
    tokens[i] = ids[token.id];
    logprobs[i] = std::fmin(0.0, token.value * scale.temperature - std::log(total));
  }
}

}  // namespace
}  // namespace slipstream
