// Sampling against a second, plain implementation of sampling_rows.py and noise.py in float64.
#include <algorithm>
#include <limits>
#include <numeric>

#include "check.h"
#include "support.h"
#include "tests.h"

namespace slipstream::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Words {
  uint32_t word[4];
};

// Philox-4x32-10 (Salmon et al., 2011).
Words philox(Words counter, uint64_t key) {
  uint32_t low_key = uint32_t(key), high_key = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter.word[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter.word[2];
    counter = {{uint32_t(b >> 32) ^ counter.word[1] ^ low_key, uint32_t(b),
                uint32_t(a >> 32) ^ counter.word[3] ^ high_key, uint32_t(a)}};
    low_key += 0x9E3779B9;
    high_key += 0xBB67AE85;
  }
  return counter;
}

double gumbel(const Sampling& sampling, int id) {
  const Words words = philox({{uint32_t(id), uint32_t(sampling.position), 0, 0}}, sampling.seed);
  return -std::log(-std::log((words.word[0] + 0.5) / 4294967296.0));
}

// The generator's published known answers.
void test_known_answers() {
  const uint32_t ones = 0xffffffff;
  CHECK_EQUAL(philox({{0, 0, 0, 0}}, 0).word[0], 0x6627e8d5u);
  CHECK_EQUAL(philox({{ones, ones, ones, ones}}, ~uint64_t{0}).word[0], 0x408f276du);
  CHECK_EQUAL(
      philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0x299f31d0a4093822).word[0],
      0xd16cfe09u);
}

std::vector<double> scale(const std::vector<float>& logits, double temperature) {
  std::vector<double> scaled(logits.begin(), logits.end());
  for (double& value : scaled) value /= temperature;
  const double top = *std::max_element(scaled.begin(), scaled.end());
  for (double& value : scaled) value -= top;
  return scaled;
}

// Ids that may win, best first.
std::vector<int> truncate(const std::vector<double>& scaled, const Sampling& sampling) {
  const double range = 33 * std::log(2.0) + std::log(33 * std::log(2.0));
  std::vector<int> ids;
  for (size_t id = 0; id < scaled.size(); ++id)
    if (scaled[id] >= -range) ids.push_back(int(id));
  std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return scaled[a] > scaled[b]; });
  double total = 0;
  if (sampling.top_k > 0) {
    ids.resize(std::min(ids.size(), size_t(sampling.top_k)));
    for (int id : ids) total += std::exp(scaled[id]);
  } else {
    for (double value : scaled) total += std::exp(value);
  }
  if (sampling.top_p < 1) {
    size_t kept = 0;
    for (double before = 0; kept < ids.size() && before < sampling.top_p * total; ++kept)
      before += std::exp(scaled[ids[kept]]);
    ids.resize(std::max(kept, size_t{1}));
  }
  return ids;
}

int reference(const std::vector<float>& logits, const Sampling& sampling) {
  if (sampling.temperature == 0)
    return int(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const std::vector<double> scaled = scale(logits, sampling.temperature);
  int winner = -1;
  double best = 0;
  for (int id : truncate(scaled, sampling)) {
    if (sampling.min_p > 0 && scaled[id] < std::log(sampling.min_p)) continue;
    const double score = scaled[id] + gumbel(sampling, id);
    if (winner < 0 || score > best || (score == best && id < winner)) {
      winner = id;
      best = score;
    }
  }
  return winner;
}

// Peaked, ordinary, rounded to many ties, flat, or with forbidden tokens.
std::vector<float> some_logits(Random& random, int vocabulary, int kind) {
  const float wide = kind == 0 ? 60.0f : 12.0f;
  std::vector<float> logits = uniform_floats(random, vocabulary, -wide, wide);
  for (float& value : logits) {
    if (kind == 2) value = std::round(value / 4);
    if (kind == 3) value = -1.5f;
    if (kind == 4 && random() % 2) value = -kInfinity;
  }
  logits[random() % vocabulary] = kind == 3 ? -1.5f : wide;
  return logits;
}

template <typename Value>
Value one_of(Random& random, std::initializer_list<Value> values) {
  return values.begin()[random() % values.size()];
}

Sampling some_sampling(Random& random, int vocabulary) {
  Sampling sampling{};
  sampling.temperature = one_of(random, {0.0, 1e-5, 0.3, 1.0, 1.0, 2.0});
  sampling.top_p = one_of(random, {1.0, 1.0, 0.05, 0.5, 0.95});
  sampling.min_p = one_of(random, {0.0, 0.0, 1e-9, 0.1, 1.0});
  sampling.top_k = one_of(random, {0, 0, 1, 7, 40, vocabulary, vocabulary + 1});
  sampling.seed = random();
  sampling.position = int32_t(random() % 100000);
  return sampling;
}

void check_sample(const KernelSet& kernels, const std::vector<float>& logits,
                  const Sampling& sampling) {
  Context context("temperature ", sampling.temperature, " top_k ", sampling.top_k, " top_p ",
                  sampling.top_p, " min_p ", sampling.min_p);
  CHECK_EQUAL(kernels.sample(logits.data(), int(logits.size()), sampling),
              reference(logits, sampling));
}

void test_vocabulary(const KernelSet& kernels, int vocabulary, int trials) {
  Random random(vocabulary);
  for (int trial = 0; trial < trials; ++trial) {
    Context context("vocabulary ", vocabulary, " trial ", trial);
    const std::vector<float> logits = some_logits(random, vocabulary, trial % 5);
    check_sample(kernels, logits, some_sampling(random, vocabulary));
  }
}

// Two equal best logits anywhere: in one vector, in different ones, in the remainder.
void test_ties_of_argmax(const KernelSet& kernels) {
  std::vector<float> logits(5003, -1.0f);
  const int places[] = {0, 1, 15, 16, 17, 63, 64, 1023, 1024, 2047, 4095, 4992, 5001, 5002};
  for (int a : places)
    for (int b : places) {
      logits[a] = logits[b] = 2.5f;
      CHECK_EQUAL(kernels.sample(logits.data(), 5003, Sampling{}), std::min(a, b));
      logits[a] = logits[b] = -1.0f;
    }
}

// -0 and 0 are equal; minus infinity everywhere gives the first token.
void test_special_values(const KernelSet& kernels) {
  std::vector<float> logits(40, -0.0f);
  logits[20] = 0.0f;
  CHECK_EQUAL(kernels.sample(logits.data(), 40, Sampling{}), 0);
  std::fill(logits.begin(), logits.end(), -kInfinity);
  CHECK_EQUAL(kernels.sample(logits.data(), 40, Sampling{}), 0);
  logits[33] = -3e38f;
  CHECK_EQUAL(kernels.sample(logits.data(), 40, Sampling{}), 33);
}

// What logits that no model should give may do: anything but crash, loop or leave the vocabulary.
void test_broken_logits(const KernelSet& kernels) {
  Random random(3);
  for (int vocabulary : {1, 17, 1000})
    for (float broken : {kNan, kInfinity, -kInfinity})
      for (int trial = 0; trial < 200; ++trial) {
        std::vector<float> logits = some_logits(random, vocabulary, trial % 5);
        const bool all = trial % 4 == 0;
        for (float& value : logits)
          if (all || random() % 2) value = broken;
        const int id = kernels.sample(logits.data(), vocabulary, some_sampling(random, vocabulary));
        CHECK(0 <= id && id < vocabulary);
        const bool sound = std::any_of(logits.begin(), logits.end(),
                                       [](float value) { return std::isfinite(value); });
        CHECK(broken > 0 || !sound || std::isfinite(logits[id]));
      }
}

// Where the logits lie in memory changes nothing.
void test_alignment(const KernelSet& kernels) {
  Random random(5);
  const std::vector<float> logits = some_logits(random, 1000, 1);
  Sampling sampling{};
  sampling.temperature = 2;
  sampling.top_p = 0.9;
  const int id = kernels.sample(logits.data(), 1000, sampling);
  for (int offset = 1; offset < 16; ++offset) {
    std::vector<float> moved(offset + logits.size());
    std::copy(logits.begin(), logits.end(), moved.begin() + offset);
    CHECK_EQUAL(kernels.sample(moved.data() + offset, 1000, sampling), id);
  }
}

// Of two equal tokens each wins half of the draws: 4000 of 8000 within 5 standard deviations.
void test_frequencies(const KernelSet& kernels) {
  std::vector<float> logits(100, -kInfinity);
  logits[3] = logits[90] = 1.0f;
  Sampling sampling{};
  sampling.temperature = 1;
  sampling.top_p = 1;
  int firsts = 0;
  for (sampling.position = 0; sampling.position < 8000; ++sampling.position)
    firsts += kernels.sample(logits.data(), 100, sampling) == 3;
  CHECK_CLOSE(firsts, 4000, 5 * std::sqrt(8000 * 0.25));
}

}  // namespace

void test_sample(const KernelSet& kernels) {
  test_known_answers();
  test_vocabulary(kernels, 1, 100);
  for (int vocabulary : {2, 15, 16, 17, 1000}) test_vocabulary(kernels, vocabulary, 300);
  test_vocabulary(kernels, 49152, 30);
  test_ties_of_argmax(kernels);
  test_special_values(kernels);
  test_broken_logits(kernels);
  test_alignment(kernels);
  test_frequencies(kernels);
}

}  // namespace slipstream::test
