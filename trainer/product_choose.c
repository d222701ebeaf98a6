/* product_choose.c -- picks the schemes for this processor; see product.h. By what it has, never by measuring: a choice
 * must not differ between ranks or runs. */
#include "kernels.h"
#include "product.h"

extern const struct product_scheme product_portable[2], product_avx2[2], product_avx512[2], product_amx, product_dot;
extern int                         product_amx_usable(void), product_dot_usable(void);

static const struct product_scheme *widest(void)
{
#ifdef __x86_64__
    static const struct product_scheme *const table[] = {product_portable, product_avx2, product_avx512};

    return table[kernels_usable() - 1];
#else
    return product_portable;
#endif
}

const struct product_scheme *product_single(void)
{
    return widest();
}

const struct product_scheme *product_half(void)
{
#ifdef HAVE_AMX
    if (product_amx_usable())
        return &product_amx;
    if (kernels_usable() == 3 && product_dot_usable())
        return &product_dot;
#endif
    return widest() + 1;
}
