/* Wipes memory before it is freed.
 *
 * Tokens pass through buffers of JSON, HTTP and TLS that nobody else wipes, and a
 * vector that grows leaves its old bytes behind. The global allocator is
 * regorus's mimalloc, which counts what a policy takes: a second one cannot be
 * declared, and this one has no switch for it. So the linker puts these functions
 * before its own (`--wrap`, see build.rs).
 *
 * In: blocks of mimalloc. Out: the same blocks, zeroed, back to it. Never: an
 * allocation of its own kind.
 */
#include <stddef.h>
#include <string.h>

size_t mi_usable_size(const void *block);
void *mi_malloc_aligned(size_t size, size_t alignment);
void __real_mi_free(void *block);

void __wrap_mi_free(void *block) {
    if (block != NULL) {
        /* Not removed by a compiler: it does not know what mi_free reads. */
        memset(block, 0, mi_usable_size(block));
        __real_mi_free(block);
    }
}

/* Blocks keep their alignment, so one that is large enough, and not far too
 * large, can stay where it is. */
void *__wrap_mi_realloc_aligned(void *block, size_t size, size_t alignment) {
    size_t usable = block == NULL ? 0 : mi_usable_size(block);
    if (block != NULL && size <= usable && size >= usable / 2) {
        return block;
    }
    void *moved = mi_malloc_aligned(size, alignment);
    if (moved != NULL && block != NULL) {
        memcpy(moved, block, size < usable ? size : usable);
        __wrap_mi_free(block);
    }
    return moved;
}
