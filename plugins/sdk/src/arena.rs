//! A bump allocator in static memory.
//!
//! An instance lives for one call, so freed memory need not be reused. Allocating from memory that
//! exists from the start avoids `memory.grow`, which costs the host two system calls a request and
//! slows down its other threads.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::null_mut;

/// Size of the static memory. Only what does not fit grows the guest's memory.
const ARENA_BYTES: usize = 64 * 1024;

/// Size of a page of WebAssembly memory.
const PAGE_BYTES: usize = 64 * 1024;

#[repr(align(16))]
struct Arena(UnsafeCell<[u8; ARENA_BYTES]>);

/// The memory with the addresses of the next allocation and of the end. Both are 0 before the first
/// allocation.
struct Bump {
    arena: Arena,
    next: UnsafeCell<usize>,
    end: UnsafeCell<usize>,
}

#[expect(unsafe_code, reason = "a guest has exactly one thread")]
// SAFETY: components of this world are single-threaded.
unsafe impl Sync for Bump {}

#[global_allocator]
static BUMP: Bump = Bump {
    arena: Arena(UnsafeCell::new([0; ARENA_BYTES])),
    next: UnsafeCell::new(0),
    end: UnsafeCell::new(0),
};

impl Bump {
    /// Allocates `size` bytes. `None` if the host grants no more memory.
    #[expect(unsafe_code, reason = "only one thread accesses the cells")]
    fn take(&self, size: usize, align: usize) -> Option<usize> {
        // SAFETY: there is only one thread, and no reference to the cells outlives this call.
        let (next, end) = unsafe { (&mut *self.next.get(), &mut *self.end.get()) };
        if *end == 0 {
            *next = self.arena.0.get() as usize;
            *end = *next + ARENA_BYTES;
        }
        let mut start = next.checked_add(align - 1)? & !(align - 1);
        if start.checked_add(size)? > *end {
            let wanted = size.checked_add(align)?.div_ceil(PAGE_BYTES);
            let page = core::arch::wasm32::memory_grow::<0>(wanted);
            if page == usize::MAX {
                return None;
            }
            let fresh = page * PAGE_BYTES;
            if fresh != *end {
                start = fresh;
            }
            *end = fresh + wanted * PAGE_BYTES;
            start = start.checked_add(align - 1)? & !(align - 1);
        }
        *next = start + size;
        Some(start)
    }

    /// Whether `pointer` with `size` bytes is the latest allocation.
    #[expect(unsafe_code, reason = "only one thread accesses the cells")]
    fn is_last(&self, pointer: *mut u8, size: usize) -> bool {
        // SAFETY: there is only one thread.
        pointer as usize + size == unsafe { *self.next.get() }
    }
}

#[expect(unsafe_code, reason = "`GlobalAlloc` is an unsafe trait")]
// SAFETY: every returned address lies in the arena or in pages grown for it, is aligned, and is not
// returned again while it is in use.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.take(layout.size(), layout.align())
            .map_or(null_mut(), |address| address as *mut u8)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if self.is_last(pointer, layout.size()) {
            // SAFETY: there is only one thread, and the latest allocation ends at `next`.
            unsafe { *self.next.get() = pointer as usize };
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: there is only one thread.
        let room = unsafe { *self.end.get() };
        let in_place = self.is_last(pointer, layout.size())
            && (pointer as usize).checked_add(new_size).is_some_and(|end| end <= room);
        if in_place {
            // SAFETY: there is only one thread, and the new end was just checked.
            unsafe { *self.next.get() = pointer as usize + new_size };
            return pointer;
        }
        let Some(address) = self.take(new_size, layout.align()) else {
            return null_mut();
        };
        // SAFETY: the blocks do not overlap, and both are at least as long as what is copied.
        unsafe { core::ptr::copy_nonoverlapping(pointer, address as *mut u8, layout.size().min(new_size)) };
        address as *mut u8
    }
}
