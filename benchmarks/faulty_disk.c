/* A disk that fails at the k-th operation below one folder: loaded before libc by LD_PRELOAD, armed by faulty_arm.

   Operations are counted where a program changes what a disk has: write, pwrite, ftruncate, fsync, fdatasync, rename,
   opening to write, and mapping a file of the folder. A process that is not armed passes straight through. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

enum { PASS, FULL, BROKEN, SHORT, KILLED };     /* FULL: that operation and all later ones that take space fail */

static char root[PATH_MAX];
static long count, at;
static int mode;
static char letters[1 << 20];                   /* of each operation: see faulty_letters */

#define NEXT(type, name) static type (*next)(); if (!next) *(void **)&next = dlsym(RTLD_NEXT, name)

/* Arm this process: operation number `k` (from 1) below `folder` fails as `how`. k = 0 only counts. */
void faulty_arm(const char *folder, long k, int how) {
    strncpy(root, folder, sizeof root - 1);
    count = 0; at = k; mode = how;
}

long faulty_count(void) { return count; }

/* A letter for each operation: w write, t truncate, s sync, r rename, d mkdir, c open to create, o open, m map. */
const char *faulty_letters(void) { return letters; }

static int below(const char *path) {
    char here[PATH_MAX];
    if (!root[0] || !path) return 0;
    if (path[0] != '/') path = getcwd(here, sizeof here);       /* a relative path is below where the process stands */
    return path && strncmp(path, root, strlen(root)) == 0;
}

static int ours(int fd) {
    char link[64], path[PATH_MAX];
    if (!root[0] || fd < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return 0;
    path[n] = 0;
    return below(path);
}

/* Counts one operation. 0: go on; -1: errno is set; SHORT: take a part. */
static int step(char letter) {
    long now = __sync_add_and_fetch(&count, 1);
    int takes_space = letter == 'w' || letter == 'd' || letter == 'c';
    if (now < (long)sizeof letters) letters[now - 1] = letter;
    if (!at || now < at || (now > at && !(mode == FULL && takes_space))) return 0;
    if (mode == KILLED) raise(SIGKILL);
    if (mode == SHORT) return SHORT;
    if (mode == FULL && !takes_space) return 0;
    errno = mode == FULL ? ENOSPC : EIO;
    return -1;
}

ssize_t write(int fd, const void *data, size_t n) {
    NEXT(ssize_t, "write");
    if (ours(fd)) switch (step('w')) { case -1: return -1; case SHORT: if (n > 1) return next(fd, data, n / 2); }
    return next(fd, data, n);
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t where) {
    NEXT(ssize_t, "pwrite64");
    if (ours(fd)) switch (step('w')) { case -1: return -1; case SHORT: if (n > 1) return next(fd, data, n / 2, where); }
    return next(fd, data, n, where);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t where) { return pwrite64(fd, data, n, where); }

int fsync(int fd) { NEXT(int, "fsync"); return ours(fd) && step('s') == -1 ? -1 : next(fd); }
int fdatasync(int fd) { NEXT(int, "fdatasync"); return ours(fd) && step('s') == -1 ? -1 : next(fd); }
int ftruncate64(int fd, off64_t n) { NEXT(int, "ftruncate64"); return ours(fd) && step('t') == -1 ? -1 : next(fd, n); }
int ftruncate(int fd, off_t n) { return ftruncate64(fd, n); }

int rename(const char *from, const char *to) {
    NEXT(int, "rename");
    return below(to) && step('r') == -1 ? -1 : next(from, to);
}

int renameat(int a, const char *from, int b, const char *to) {
    NEXT(int, "renameat");
    return below(to) && step('r') == -1 ? -1 : next(a, from, b, to);
}

int mkdir(const char *path, mode_t how) { NEXT(int, "mkdir"); return below(path) && step('d') == -1 ? -1 : next(path, how); }

int open64(const char *path, int flags, ...) {
    NEXT(int, "open64");
    va_list rest;
    va_start(rest, flags);
    mode_t how = va_arg(rest, mode_t);
    va_end(rest);
    if (below(path) && (flags & (O_WRONLY | O_RDWR | O_CREAT)) && step(flags & O_CREAT ? 'c' : 'o') == -1) return -1;
    return next(path, flags, how);
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t how = va_arg(rest, mode_t);
    va_end(rest);
    return open64(path, flags, how);
}

void *mmap64(void *address, size_t n, int protection, int flags, int fd, off64_t where) {
    NEXT(void *, "mmap64");
    if (!(flags & MAP_ANONYMOUS) && ours(fd) && step('m') == -1) return MAP_FAILED;
    return next(address, n, protection, flags, fd, where);
}

void *mmap(void *address, size_t n, int protection, int flags, int fd, off_t where) {
    return mmap64(address, n, protection, flags, fd, where);
}
