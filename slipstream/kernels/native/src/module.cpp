// The Python face of the native kernels: matrices, caches, programs. Nothing here computes.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <vector>

#include "grower.h"
#include "isa.h"
#include "kernels.h"
#include "packing.h"
#include "program.h"
#include "step_rows.h"
#include "team.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace slipstream {
namespace {

template <typename T, int N>
using Array = nb::ndarray<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
using Vector = Array<float, 1>;
using Int32 = Array<int32_t, 1>;

const KernelSet* required_set(const std::string& isa) {
  const KernelSet* kernels = kernel_set(isa.c_str());
  if (!kernels) throw std::invalid_argument("this machine or build has no kernels for " + isa);
  return kernels;
}

// Keys and values, zero until written; untouched pages take no memory.
struct KVCache {
  KVCache(int type, int layers, int pages, int kv_heads, int head_dim)
      : view{KVType(type), layers, pages, kv_heads, head_dim, nullptr} {
    const size_t bytes = size_t(layers) * pages * kv_heads * view.block_bytes();
    data.reset(static_cast<uint8_t*>(std::calloc(bytes + 1, 1)));
    if (!data) throw std::bad_alloc();
    view.data = data.get();
  }
  struct Free {
    void operator()(uint8_t* memory) const { std::free(memory); }
  };
  Cache view;
  std::unique_ptr<uint8_t, Free> data;
};

// Activations kept by slot, zero until written; untouched pages take no memory.
struct KeptRows {
  KeptRows(int slots, int parts, int width)
      : view{parts, width, (width + kGroup - 1) / kGroup * kGroup, nullptr}, slots(slots) {
    data.reset(static_cast<uint16_t*>(
        std::calloc(size_t(slots) * parts * view.width + 1, sizeof(uint16_t))));
    if (!data) throw std::bad_alloc();
    view.data = data.get();
  }
  struct Free {
    void operator()(uint16_t* memory) const { std::free(memory); }
  };
  SlotRows view;
  int slots;
  std::unique_ptr<uint16_t, Free> data;
};

// The team and the kernel set that everything of one engine runs on.
struct Machine {
  Machine(const std::string& isa, int threads)
      : kernels(required_set(isa)), team(std::make_unique<Team>(threads)) {}
  const KernelSet* kernels;
  std::unique_ptr<Team> team;
};

Attention attention_of(int heads, int layer, const KVCache& cache, const float* query_norm,
                       const float* key_norm, float eps, const float* cosines, const float* sines) {
  Attention attention{};
  attention.heads = heads;
  attention.layer = layer;
  attention.cache = cache.view;
  attention.query_norm = query_norm;
  attention.key_norm = key_norm;
  attention.eps = eps;
  attention.cosines = cosines;
  attention.sines = sines;
  return attention;
}

void run_program(Program& program, Machine& machine, Int32 tokens, Int32 positions, Int32 slots,
                 Int32 angles, Int32 sources, Int32 request_of, Array<bool, 1> follows,
                 Array<int32_t, 2> page_tables, Int32 tail_starts, Array<int32_t, 2> tail_slots,
                 Int32 logit_rows) {
  Step step{};
  step.rows = int(tokens.shape(0));
  step.requests = int(tail_starts.shape(0));
  step.page_table_width = int(page_tables.shape(1));
  step.tail_width = int(tail_slots.shape(1));
  step.logit_count = int(logit_rows.shape(0));
  step.tokens = tokens.data();
  step.positions = positions.data();
  step.slots = slots.data();
  step.angles = angles.data();
  step.sources = sources.data();
  step.request_of = request_of.data();
  step.follows = reinterpret_cast<const uint8_t*>(follows.data());
  step.page_tables = page_tables.data();
  step.tail_starts = tail_starts.data();
  step.tail_slots = tail_slots.data();
  step.logit_rows = logit_rows.data();
  nb::gil_scoped_release release;
  program.run(*machine.team, step);
}

nb::ndarray<nb::numpy, const float, nb::ndim<2>> floats_of(nb::handle self, int buffer, int rows,
                                                           int width) {
  const Rows view = nb::cast<Program&>(self).rows(buffer);
  return {view.floats, {size_t(rows), size_t(width)}, self, {int64_t(view.width), 1}};
}

void move_slots(Machine& machine, const KVCache& cache, Int32 sources, Int32 targets) {
  const int count = int(sources.shape(0));
  nb::gil_scoped_release release;
  machine.team->run({cache.view.layers}, [&](int, int layer) {
    machine.kernels->move_slots(cache.view, layer, sources.data(), targets.data(), count);
  });
}

void move_kept(const KeptRows& kept, Int32 sources, Int32 targets) {
  const size_t row = size_t(kept.view.parts) * kept.view.width;
  std::vector<uint16_t> rows(sources.shape(0) * row);
  for (size_t i = 0; i < sources.shape(0); ++i)
    std::copy_n(kept.view.at(sources.data()[i], 0), row, rows.data() + i * row);
  for (size_t i = 0; i < sources.shape(0); ++i)
    std::copy_n(rows.data() + i * row, row, kept.view.at(targets.data()[i], 0));
}

// What is kept in all slots, [slots, parts, width], as bits of bfloat16; a view.
nb::ndarray<nb::numpy, const uint16_t, nb::ndim<3>> kept_bits(nb::handle self) {
  const KeptRows& kept = nb::cast<KeptRows&>(self);
  return {
      kept.view.data, {size_t(kept.slots), size_t(kept.view.parts), size_t(kept.view.width)}, self};
}

template <int N, typename T, typename Value>
nb::ndarray<nb::numpy, T, nb::ndim<N>> array_of(std::vector<Value>& values,
                                                std::initializer_list<size_t> shape) {
  auto* kept = new std::vector<Value>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<Value>*>(p); });
  return {reinterpret_cast<T*>(kept->data()), shape, owner};
}

// See StepTrees in step_batch.py; gives the fields of StepBatch, in its order.
nb::tuple lay_step(const std::vector<Int32>& tokens, const std::vector<Int32>& parents,
                   const std::vector<int>& roots, const std::vector<int>& committed,
                   const std::vector<std::vector<int32_t>>& pages, const std::vector<bool>& emits) {
  std::vector<StepTree> trees;
  for (size_t i = 0; i < roots.size(); ++i) {
    const int nodes = int(tokens.at(i).shape(0));
    trees.push_back({tokens[i].data(), parents.at(i).data(), nodes, roots[i], committed.at(i),
                     pages.at(i).data(), int(pages[i].size()), emits.at(i)});
    bool sound = parents[i].shape(0) == size_t(nodes) && roots[i] >= 0 && roots[i] < nodes &&
                 committed[i] / kBlock <= trees[i].page_count;
    for (int node = roots[i] + 1; sound && node < nodes; ++node)
      sound = 0 <= trees[i].parents[node] && trees[i].parents[node] < node;
    if (!sound) throw std::invalid_argument("a tree or the pages that it stands on are not sound");
  }
  StepRows rows = lay_rows(trees);
  const size_t count = rows.tokens.size(), requests = trees.size();
  const size_t width = rows.page_table_width, tail_width = rows.tail_width;
  const size_t wanted = rows.logit_rows.size();
  return nb::make_tuple(
      array_of<1, int32_t>(rows.tokens, {count}), array_of<1, int32_t>(rows.positions, {count}),
      array_of<1, int32_t>(rows.slots, {count}), array_of<1, int32_t>(rows.owners, {count}),
      array_of<1, bool>(rows.follows, {count}),
      array_of<2, int32_t>(rows.page_tables, {requests, width}),
      array_of<1, int32_t>(rows.tail_starts, {requests}),
      array_of<2, int32_t>(rows.tail_slots, {count, tail_width}),
      array_of<1, int32_t>(rows.logit_rows, {wanted}));
}

// Reads all of `data` once, as a step reads weights; the sum only keeps the reads from being left
// out.
uint64_t read_all(Machine& machine, Array<uint64_t, 1> data) {
  constexpr size_t kWordsOfTask = 1 << 13, kWordsOfLine = 8, kWordsAhead = 384;
  const size_t words = data.shape(0);
  std::atomic<uint64_t> total{0};
  nb::gil_scoped_release release;
  machine.team->run({int((words + kWordsOfTask - 1) / kWordsOfTask)}, [&](int, int task) {
    const size_t last = std::min(words, (task + 1) * kWordsOfTask);
    uint64_t sum = 0;
    for (size_t line = task * kWordsOfTask; line < last; line += kWordsOfLine) {
      __builtin_prefetch(data.data() + line + kWordsAhead);
      for (size_t i = line; i < std::min(last, line + kWordsOfLine); ++i) sum += data.data()[i];
    }
    total += sum;
  });
  return total;
}

nb::ndarray<nb::numpy, int32_t, nb::ndim<1>> sample(
    Machine& machine, nb::ndarray<const float, nb::ndim<2>, nb::device::cpu> logits,
    Array<double, 1> temperature, Array<double, 1> top_p, Array<double, 1> min_p, Int32 top_k,
    Array<uint64_t, 1> seed, Int32 position) {
  const int rows = int(logits.shape(0));
  const int vocabulary = int(logits.shape(1));
  int32_t* tokens = new int32_t[rows];
  nb::capsule owner(tokens, [](void* memory) noexcept { delete[] static_cast<int32_t*>(memory); });
  if (rows > 0 && logits.stride(1) != 1)
    throw std::invalid_argument("rows of logits must be contiguous");
  {
    nb::gil_scoped_release release;
    machine.team->run({rows}, [&](int, int row) {
      const Sampling sampling{temperature.data()[row], top_p.data()[row], min_p.data()[row],
                              seed.data()[row],        top_k.data()[row], position.data()[row]};
      tokens[row] =
          machine.kernels->sample(logits.data() + row * logits.stride(0), vocabulary, sampling);
    });
  }
  return {tokens, {size_t(rows)}, owner};
}

// See Kernels.rank in interface.py: tokens and log probabilities, [rows, count].
void rank(Machine& machine, nb::ndarray<const float, nb::ndim<2>, nb::device::cpu> logits,
          Int32 ids, Array<double, 1> temperature, Array<double, 1> top_p, Array<double, 1> min_p,
          Int32 top_k, Array<uint64_t, 1> seed, Int32 position,
          nb::ndarray<int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu> tokens,
          nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu> logprobs) {
  const int rows = int(logits.shape(0)), vocabulary = int(logits.shape(1));
  const int count = int(tokens.shape(1));
  if (rows > 0 && logits.stride(1) != 1)
    throw std::invalid_argument("rows of logits must be contiguous");
  if (count > kMostRanked) throw std::invalid_argument("too many tokens asked for");
  nb::gil_scoped_release release;
  machine.team->run({rows}, [&](int, int row) {
    const Sampling sampling{temperature.data()[row], top_p.data()[row], min_p.data()[row],
                            seed.data()[row],        top_k.data()[row], position.data()[row]};
    machine.kernels->rank(logits.data() + row * logits.stride(0), vocabulary, ids.data(), sampling,
                          count, tokens.data() + row * count, logprobs.data() + row * count);
  });
}

// See TreeGrowth in growth.py; all arrays are over requests but the first two, over rows.
nb::list grow(Grower& grower, Machine& machine, Int32 tokens, Int32 sources, Int32 first_pages,
              int ring_pages, Int32 ring_starts, Int32 entered, Int32 roots, Int32 levels,
              Int32 topk, Int32 nodes, Array<float, 1> least_scores, Array<double, 1> temperature,
              Array<double, 1> top_p, Array<double, 1> min_p, Int32 top_k, Array<uint64_t, 1> seed,
              Int32 position) {
  std::vector<Growth> growths;
  size_t row = 0;
  for (size_t i = 0; i < roots.shape(0); ++i) {
    growths.push_back({{first_pages.data()[i], ring_pages, ring_starts.data()[i]},
                       entered.data()[i],
                       roots.data()[i],
                       tokens.data() + row,
                       sources.data() + row,
                       {levels.data()[i], topk.data()[i], nodes.data()[i], least_scores.data()[i]},
                       {temperature.data()[i], top_p.data()[i], min_p.data()[i], seed.data()[i],
                        top_k.data()[i], position.data()[i]}});
    if (growths[i].entered >= growths[i].root || growths[i].limits.topk > kMostRanked)
      throw std::invalid_argument("every tree needs a row to grow from and a topk within reach");
    row += growths[i].root - growths[i].entered;
  }
  if (row != tokens.shape(0) || row != sources.shape(0))
    throw std::invalid_argument("rows are not those of the requests");
  std::vector<GrownTree> trees;
  {
    nb::gil_scoped_release release;
    trees = grower.grow(*machine.team, growths);
  }
  nb::list grown;
  for (const GrownTree& tree : trees) {
    float* scores = new float[tree.scores.size()];
    std::copy(tree.scores.begin(), tree.scores.end(), scores);
    nb::capsule owner(scores, [](void* memory) noexcept { delete[] static_cast<float*>(memory); });
    grown.append(nb::make_tuple(
        tree.tokens, tree.parents,
        nb::ndarray<nb::numpy, float, nb::ndim<1>>(scores, {tree.scores.size()}, owner)));
  }
  return grown;
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "Native CPU kernels; see kernels.py beside this for how they are used.";
  m.def("supports", [](const std::string& isa) { return kernel_set(isa.c_str()) != nullptr; });
  m.def("compiled",
        [](const std::string& isa) { return compiled_kernel_set(isa.c_str()) != nullptr; });
  m.def("compiler", &compiler);
  m.def("lay_step", &lay_step, "tokens"_a, "parents"_a, "roots"_a, "committed"_a, "pages"_a,
        "emits"_a);

  nb::class_<Machine>(m, "Machine")
      .def(nb::init<std::string, int>(), "isa"_a, "threads"_a)
      .def("form_of", [](const Machine& machine,
                         int format) { return int(machine.kernels->form_of(Format(format))); })
      .def("move_slots", &move_slots, "cache"_a, "sources"_a, "targets"_a)
      .def("read_all", &read_all, "data"_a)
      .def("sample", &sample, "logits"_a, "temperature"_a, "top_p"_a, "min_p"_a, "top_k"_a,
           "seed"_a, "position"_a)
      .def("rank", &rank, "logits"_a, "ids"_a, "temperature"_a, "top_p"_a, "min_p"_a, "top_k"_a,
           "seed"_a, "position"_a, "tokens"_a, "logprobs"_a);

  nb::class_<PackedMatrix>(m, "PackedMatrix")
      .def(
          "__init__",
          [](PackedMatrix* self, int format, int outputs, int inputs, bool swiglu) {
            new (self) PackedMatrix(Format(format), outputs, inputs, swiglu);
          },
          "format"_a, "outputs"_a, "inputs"_a, "swiglu"_a)
      .def(
          "fill",
          [](PackedMatrix& self, Array<uint8_t, 2> data, const std::string& kind, int first,
             int first_panel, int panel_step) {
            nb::gil_scoped_release release;
            self.fill({data.data(), int(data.shape(0)), data.shape(1), kind}, first, first_panel,
                      panel_step);
          },
          "data"_a, "kind"_a, "first"_a, "first_panel"_a, "panel_step"_a)
      .def("set_bias", &PackedMatrix::set_bias, "bias"_a)
      .def_prop_ro("nbytes", &PackedMatrix::bytes)
      .def_prop_ro(
          "multiply_adds",
          [](const PackedMatrix& self) { return size_t(self.view().outputs) * self.view().inputs; })
      .def_prop_ro("format", [](const PackedMatrix& self) { return int(self.view().format); });

  nb::class_<KVCache>(m, "KVCache")
      .def(nb::init<int, int, int, int, int>(), "type"_a, "layers"_a, "pages"_a, "kv_heads"_a,
           "head_dim"_a);
  nb::class_<KeptRows>(m, "KeptRows")
      .def(nb::init<int, int, int>(), "slots"_a, "parts"_a, "width"_a)
      .def("move", &move_kept, "sources"_a, "targets"_a)
      .def("bits", &kept_bits)
      .def_prop_ro("values", [](const KeptRows& self) { return self.view.values; });
  m.def("kv_page_bytes", [](int type, int layers, int kv_heads, int head_dim) {
    return layers * kv_heads *
           Cache{KVType(type), layers, 1, kv_heads, head_dim, nullptr}.block_bytes();
  });

  // Matrices, norms, tables and caches must outlive the program; kernels.py sees to that.
  nb::class_<Program>(m, "Program")
      .def(
          "__init__",
          [](Program* self, const Machine& machine) { new (self) Program(machine.kernels); },
          "machine"_a)
      .def(
          "add_rows",
          [](Program& self, int form, int width, int domain) {
            return self.add_rows(Form(form), width, Domain(domain));
          },
          "form"_a, "width"_a, "domain"_a)
      .def(
          "embed",
          [](Program& self, const PackedMatrix& table, int out) { self.embed(table.view(), out); },
          "table"_a, "out"_a)
      .def(
          "norm",
          [](Program& self, int x, Vector weight, float eps, int domain, int out) {
            self.norm(x, weight.data(), int(weight.shape(0)), eps, Domain(domain), out);
          },
          "x"_a, "weight"_a, "eps"_a, "domain"_a, "out"_a)
      .def(
          "product",
          [](Program& self, const PackedMatrix& matrix, int in, int finish, int residual,
             int domain, int out) {
            self.product(matrix.view(), in, Finish(finish), residual, Domain(domain), out);
          },
          "matrix"_a, "in_"_a, "finish"_a, "residual"_a, "domain"_a, "out"_a)
      .def(
          "attention",
          [](Program& self, int qkv, int heads, int layer, const KVCache& cache,
             Array<float, 2> cosines, Array<float, 2> sines, int out) {
            self.attention(attention_of(heads, layer, cache, nullptr, nullptr, 0.0f, cosines.data(),
                                        sines.data()),
                           qkv, out);
          },
          "qkv"_a, "heads"_a, "layer"_a, "cache"_a, "cosines"_a, "sines"_a, "out"_a)
      .def(
          "normed_attention",
          [](Program& self, int qkv, int heads, int layer, const KVCache& cache,
             Array<float, 2> cosines, Array<float, 2> sines, Vector query_norm, Vector key_norm,
             float eps, int out) {
            self.attention(attention_of(heads, layer, cache, query_norm.data(), key_norm.data(),
                                        eps, cosines.data(), sines.data()),
                           qkv, out);
          },
          "qkv"_a, "heads"_a, "layer"_a, "cache"_a, "cosines"_a, "sines"_a, "query_norm"_a,
          "key_norm"_a, "eps"_a, "out"_a)
      .def(
          "store",
          [](Program& self, int kv, int layer, const KVCache& cache, Array<float, 2> cosines,
             Array<float, 2> sines) {
            self.store(
                attention_of(0, layer, cache, nullptr, nullptr, 0.0f, cosines.data(), sines.data()),
                kv);
          },
          "kv"_a, "layer"_a, "cache"_a, "cosines"_a, "sines"_a)
      .def(
          "convert", [](Program& self, int x, int out) { self.convert(x, out); }, "x"_a, "out"_a)
      .def(
          "keep",
          [](Program& self, const KeptRows& kept, int part, int x) {
            self.keep(kept.view, part, x);
          },
          "kept"_a, "part"_a, "x"_a)
      .def(
          "gather",
          [](Program& self, const KeptRows& kept, int part, int out, int column) {
            self.gather(kept.view, part, out, column);
          },
          "kept"_a, "part"_a, "out"_a, "column"_a)
      .def("run", &run_program, "machine"_a, "tokens"_a, "positions"_a, "slots"_a, "angles"_a,
           "sources"_a, "requests"_a, "follows"_a, "page_tables"_a, "tail_starts"_a, "tail_slots"_a,
           "logit_rows"_a)
      .def("floats", &floats_of, "buffer"_a, "rows"_a, "width"_a);

  // Programs must outlive it.
  nb::class_<Grower>(m, "Grower")
      .def(
          "__init__",
          [](Grower* self, const Machine& machine, Program& first, int first_logits,
             Program& deeper, int deeper_logits, Int32 ids) {
            new (self) Grower(machine.kernels, LogitsProgram{&first, first_logits},
                              LogitsProgram{&deeper, deeper_logits},
                              std::vector<int32_t>(ids.data(), ids.data() + ids.shape(0)));
          },
          "machine"_a, "first"_a, "first_logits"_a, "deeper"_a, "deeper_logits"_a, "ids"_a)
      .def("grow", &grow, "machine"_a, "tokens"_a, "sources"_a, "first_pages"_a, "ring_pages"_a,
           "ring_starts"_a, "entered"_a, "roots"_a, "levels"_a, "topk"_a, "nodes"_a,
           "least_scores"_a, "temperature"_a, "top_p"_a, "min_p"_a, "top_k"_a, "seed"_a,
           "position"_a);
}

}  // namespace slipstream
