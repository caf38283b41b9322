/* Wipes memory before it is freed.
 *
 * Tokens pass through buffers of JSON, HTTP and TLS that no other code wipes, and a
 * vector that grows leaves its old bytes behind. The global allocator is the mimalloc
 * of regorus, which measures the memory of policies. A program has only one global
 * allocator, and mimalloc has no option to wipe. The linker therefore calls these
 * functions in place of mimalloc's own (`--wrap`, see build.rs).
 */
#include <stddef.h>
#include <string.h>

size_t mi_usable_size(const void *block);
void *mi_malloc_aligned(size_t size, size_t alignment);
void __real_mi_free(void *block);

void __wrap_mi_free(void *block) {
    if (block != NULL) {
        /* The compiler keeps this call: it cannot know that mi_free does not read the block. */
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
