// One kernel set. Built once per instruction set, with its flags and its SLIPSTREAM_ISA_* names.
#include "kernels.h"

#if defined(__AMX_BF16__)
#include "amx_product.h"
#endif
#include "attention.h"
#include "product.h"
#include "sampling.h"

namespace slipstream {

extern const KernelSet SLIPSTREAM_ISA_SYMBOL;

#if defined(__AMX_BF16__)
constexpr auto* kFormOf = form_of_tiles;
constexpr auto* kProduct = product_of_tiles;
#else
constexpr auto* kFormOf = form_of;
constexpr auto* kProduct = product;
#endif

const KernelSet SLIPSTREAM_ISA_SYMBOL = {
    SLIPSTREAM_ISA_NAME, kFormOf, embed, rms_norm,   write_row, kProduct,
    store_keys,          attend,  merge, move_slots, sample,    rank,
};

}  // namespace slipstream
