// A recorded program gives the same bits with any number of threads, and for steps of any size.
#include "program.h"

#include <cstring>
#include <vector>

#include "check.h"
#include "packing.h"
#include "tests.h"

namespace slipstream::test {
namespace {

constexpr int kVocabulary = 80, kHidden = 64, kHeads = 4, kKvHeads = 2, kHeadDim = 32;
constexpr int kInner = 96, kPages = 20;

std::vector<float> noise(size_t count, uint32_t seed) {
  std::vector<float> values(count);
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = float(seed >> 8) / float(1 << 24) - 0.5f;
  }
  return values;
}

PackedMatrix matrix(int outputs, int inputs, bool swiglu, uint32_t seed) {
  PackedMatrix packed(Format::kBfloat16, outputs, inputs, swiglu);
  const std::vector<float> values = noise(size_t(outputs) * inputs, seed);
  packed.fill(
      {reinterpret_cast<const uint8_t*>(values.data()), outputs, inputs * sizeof(float), "float32"},
      0, 0, 1);
  return packed;
}

// A one-layer decoder and all that its program points to.
class Decoder {
 public:
  explicit Decoder(const KernelSet& kernels)
      : table_(matrix(kVocabulary, kHidden, false, 1)),
        qkv_(matrix((kHeads + 2 * kKvHeads) * kHeadDim, kHidden, false, 2)),
        output_(matrix(kHidden, kHeads * kHeadDim, false, 3)),
        gate_up_(matrix(2 * kInner, kHidden, true, 4)),
        down_(matrix(kHidden, kInner, false, 5)),
        norm_(noise(kHidden, 6)),
        turns_(noise(size_t(kPages) * kBlock * kHeadDim / 2, 7)),
        program_(&kernels) {
    Attention attention{};
    attention.heads = kHeads;
    attention.cache = {KVType::kBfloat16, 1, kPages, kKvHeads, kHeadDim, nullptr};
    memory_.resize(kPages * kKvHeads * attention.cache.block_bytes());
    attention.cache.data = memory_.data();
    attention.cosines = attention.sines = turns_.data();
    record(kernels.form_of(Format::kBfloat16), attention);
  }

  // Logits of a prompt of `count` tokens as one step, alone in the memory.
  std::vector<float> run(Team& team, int count) {
    std::vector<int32_t> tokens, positions, slots, tails;
    for (int i = 0; i < count; ++i) {
      tokens.push_back(i * 7 % kVocabulary);
      positions.push_back(i);
      slots.push_back(i);
    }
    for (int i = 0; i < count; ++i) tails.insert(tails.end(), slots.begin(), slots.end());
    const std::vector<int32_t> zeros(size_t(count), 0);
    std::vector<uint8_t> follows(size_t(count), 1);
    follows[0] = 0;
    Step step{};
    step.rows = step.logit_count = step.tail_width = count;
    step.requests = step.page_table_width = 1;
    step.tokens = tokens.data();
    step.positions = step.angles = step.slots = step.logit_rows = positions.data();
    step.request_of = step.page_tables = step.tail_starts = zeros.data();
    step.follows = follows.data();
    step.tail_slots = tails.data();
    program_.run(team, step);
    const float* logits = program_.rows(logits_).floats;
    return {logits, logits + size_t(count) * program_.rows(logits_).width};
  }

 private:
  void record(Form form, const Attention& attention) {
    const auto rows = [&](Form kind, int width) {
      return program_.add_rows(kind, width, Domain::kAll);
    };
    const int x = rows(Form::kFloat32, kHidden), normed = rows(form, kHidden);
    const int qkv = rows(Form::kFloat32, qkv_.view().outputs);
    const int mixed = rows(form, kHeads * kHeadDim), y = rows(Form::kFloat32, kHidden);
    const int inner = rows(form, kInner);
    program_.embed(table_.view(), x);
    program_.norm(x, norm_.data(), kHidden, 1e-5f, Domain::kAll, normed);
    program_.product(qkv_.view(), normed, Finish::kStore, -1, Domain::kAll, qkv);
    program_.attention(attention, qkv, mixed);
    program_.product(output_.view(), mixed, Finish::kAdd, x, Domain::kAll, y);
    program_.norm(y, norm_.data(), kHidden, 1e-5f, Domain::kAll, normed);
    program_.product(gate_up_.view(), normed, Finish::kSwiglu, -1, Domain::kAll, inner);
    program_.product(down_.view(), inner, Finish::kAdd, y, Domain::kAll, x);
    const int last = program_.add_rows(form, kHidden, Domain::kLogits);
    logits_ = program_.add_rows(Form::kFloat32, table_.view().outputs, Domain::kLogits);
    program_.norm(x, norm_.data(), kHidden, 1e-5f, Domain::kLogits, last);
    program_.product(table_.view(), last, Finish::kStore, -1, Domain::kLogits, logits_);
  }

  PackedMatrix table_, qkv_, output_, gate_up_, down_;
  std::vector<float> norm_, turns_;
  std::vector<uint8_t> memory_;
  Program program_;
  int logits_ = -1;
};

void check_equal(const std::vector<float>& a, const std::vector<float>& b) {
  CHECK_EQUAL(a.size(), b.size());
  CHECK(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace

void test_program(const KernelSet& kernels) {
  Decoder decoder(kernels);
  Team alone(1);
  for (int count : {1, 17, 300}) {
    const Context context(count, " rows");
    const std::vector<float> expected = decoder.run(alone, count);
    CHECK(expected[0] != 0.0f);
    for (int threads : {2, 3, 5}) {
      Team team(threads);
      for (int again = 0; again < 3; ++again) check_equal(decoder.run(team, count), expected);
    }
  }
}

}  // namespace slipstream::test
