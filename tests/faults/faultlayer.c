/* A layer between a process and its C library (LD_PRELOAD) that makes file calls under one path prefix go wrong.

   Not covered: calls that pass the C library by, relative paths, descriptors that were duplicated, memory maps.

   The process itself arms the layer (with ctypes): which calls, which of them (the first-th to the last-th that match,
   or each with a probability), and what happens then: an error number; only half of the bytes; the end of the process
   or its stop, right before the call; or an error although the call was made, as a server gives whose answer is lost. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { OPEN, READ, WRITE, FSYNC, RENAME, UNLINK, FLOCK, UTIME, MKDIR, STAT, CHMOD, LIST, CLOSE, TRUNCATE };
enum { FAIL, SHORT, KILL, STOP, AFTER };
enum { PASS, REFUSE, HALVE, LATE };

#define DESCRIPTORS 65536

static char prefix[4096];
static size_t prefix_length;
static unsigned long mask;
static long first, last;
static int error, mode;
static double chance;
static uint64_t dice;
static int is_armed;
static atomic_long seen, struck;
static unsigned char marked[DESCRIPTORS];
static unsigned char log_of[4096];

/* Called from Python. */

void fault_arm(const char *under, unsigned long calls, long from, long to, int code, int how, double share, long seed)
{
    is_armed = 0;
    snprintf(prefix, sizeof prefix, "%s", under);
    prefix_length = strlen(prefix);
    mask = calls, first = from, last = to, error = code, mode = how, chance = share;
    dice = (uint64_t)seed * 2654435769u + 88172645463325252u;
    seen = struck = 0;
    is_armed = 1;
}

void fault_disarm(void) { is_armed = 0; }
long fault_seen(void) { return seen; }
long fault_struck(void) { return struck; }

/* Which call the number-th one was, from 1; -1 when it is not known. */
int fault_call(long number) { return number >= 1 && number <= (long)sizeof log_of ? log_of[number - 1] : -1; }

/* Inside. */

static double throw_dice(void)
{
    dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
    return (double)(dice >> 11) / 9007199254740992.0;
}

static int is_under(const char *path)
{
    return prefix_length && path && !strncmp(path, prefix, prefix_length) &&
           (path[prefix_length] == '/' || path[prefix_length] == 0);
}

static int is_marked(int fd) { return fd >= 0 && fd < DESCRIPTORS && marked[fd]; }

static int mark(int fd, int ours)
{
    if (fd >= 0 && fd < DESCRIPTORS)
        marked[fd] = (unsigned char)ours;
    return fd;
}

static int strike(int call, int ours)
{
    if (!is_armed || !ours || !(mask & 1ul << call))
        return PASS;
    long number = ++seen;
    if (number <= (long)sizeof log_of)
        log_of[number - 1] = (unsigned char)call;
    int hit = chance > 0 ? throw_dice() < chance : number >= first && number <= last;
    if (!hit || (mode == SHORT && call != READ && call != WRITE))
        return PASS;
    ++struck;
    if (mode == KILL)
        kill(getpid(), SIGKILL), pause();
    if (mode == STOP) {
        is_armed = 0;
        raise(SIGSTOP);
        return PASS;
    }
    return mode == SHORT ? HALVE : mode == AFTER && call != OPEN && call != LIST ? LATE : REFUSE;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) \
    real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define GUARD(call, ours, made, bad) \
    int what = strike(call, ours); \
    if (what == REFUSE) \
        return errno = error, (bad); \
    if (what == LATE) { \
        if ((made) >= 0) \
            errno = error; \
        return (bad); \
    }

static mode_t mode_of(int flags, va_list rest)
{
    return flags & (O_CREAT | __O_TMPFILE) ? (mode_t)va_arg(rest, int) : 0;
}

#define OPENS(name) \
    int name(const char *path, int flags, ...) \
    { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t rights = mode_of(flags, rest); \
        va_end(rest); \
        int ours = is_under(path); \
        GUARD(OPEN, ours, 0, -1) \
        return mark(real(path, flags, rights), ours); \
    }
OPENS(open)
OPENS(open64)

#define OPENS_AT(name) \
    int name(int at, const char *path, int flags, ...) \
    { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t rights = mode_of(flags, rest); \
        va_end(rest); \
        int ours = is_under(path) || (path[0] != '/' && is_marked(at)); \
        GUARD(OPEN, ours, 0, -1) \
        return mark(real(at, path, flags, rights), ours); \
    }
OPENS_AT(openat)
OPENS_AT(openat64)

int close(int fd)
{
    REAL(close);
    int ours = is_marked(fd);
    mark(fd, 0);
    int what = strike(CLOSE, ours);
    int done = real(fd); /* a descriptor is gone even where closing it fails */
    return what == PASS ? done : (errno = error, -1);
}

ssize_t read(int fd, void *to, size_t count)
{
    REAL(read);
    GUARD(READ, is_marked(fd), real(fd, to, count), -1)
    return real(fd, to, what == HALVE ? (count + 1) / 2 : count);
}

ssize_t write(int fd, const void *from, size_t count)
{
    REAL(write);
    GUARD(WRITE, is_marked(fd), real(fd, from, count), -1)
    return real(fd, from, what == HALVE ? (count + 1) / 2 : count);
}

#define AT_PLACE(name, call, pointer, offset) \
    ssize_t name(int fd, pointer data, size_t count, offset place) \
    { \
        REAL(name); \
        GUARD(call, is_marked(fd), real(fd, data, count, place), -1) \
        return real(fd, data, what == HALVE ? (count + 1) / 2 : count, place); \
    }
AT_PLACE(pread, READ, void *, off_t)
AT_PLACE(pread64, READ, void *, off64_t)
AT_PLACE(pwrite, WRITE, const void *, off_t)
AT_PLACE(pwrite64, WRITE, const void *, off64_t)

#define ON_DESCRIPTOR(name, call, parameters, arguments) \
    int name parameters \
    { \
        REAL(name); \
        GUARD(call, is_marked(fd), real arguments, -1) \
        return real arguments; \
    }
ON_DESCRIPTOR(fsync, FSYNC, (int fd), (fd))
ON_DESCRIPTOR(fdatasync, FSYNC, (int fd), (fd))
ON_DESCRIPTOR(flock, FLOCK, (int fd, int how), (fd, how))
ON_DESCRIPTOR(futimens, UTIME, (int fd, const struct timespec times[2]), (fd, times))
ON_DESCRIPTOR(fchmod, CHMOD, (int fd, mode_t rights), (fd, rights))
ON_DESCRIPTOR(ftruncate, TRUNCATE, (int fd, off_t length), (fd, length))
ON_DESCRIPTOR(ftruncate64, TRUNCATE, (int fd, off64_t length), (fd, length))

#define ON_PATH(name, call, parameters, arguments) \
    int name parameters \
    { \
        REAL(name); \
        GUARD(call, is_under(path), real arguments, -1) \
        return real arguments; \
    }
ON_PATH(rename, RENAME, (const char *path, const char *to), (path, to))
ON_PATH(unlink, UNLINK, (const char *path), (path))
ON_PATH(rmdir, UNLINK, (const char *path), (path))
ON_PATH(mkdir, MKDIR, (const char *path, mode_t rights), (path, rights))
ON_PATH(chmod, CHMOD, (const char *path, mode_t rights), (path, rights))
ON_PATH(utimensat, UTIME, (int at, const char *path, const struct timespec times[2], int flags),
        (at, path, times, flags))

#if __GLIBC_PREREQ(2, 33) /* in older ones these are not functions of the library */
ON_DESCRIPTOR(fstat, STAT, (int fd, struct stat *to), (fd, to))
ON_DESCRIPTOR(fstat64, STAT, (int fd, struct stat64 *to), (fd, to))
ON_PATH(stat, STAT, (const char *path, struct stat *to), (path, to))
ON_PATH(stat64, STAT, (const char *path, struct stat64 *to), (path, to))
ON_PATH(lstat, STAT, (const char *path, struct stat *to), (path, to))
ON_PATH(lstat64, STAT, (const char *path, struct stat64 *to), (path, to))
ON_PATH(fstatat, STAT, (int at, const char *path, struct stat *to, int flags), (at, path, to, flags))
ON_PATH(fstatat64, STAT, (int at, const char *path, struct stat64 *to, int flags), (at, path, to, flags))
#endif

DIR *opendir(const char *path)
{
    REAL(opendir);
    int ours = is_under(path);
    GUARD(OPEN, ours, 0, NULL)
    DIR *opened = real(path);
    if (opened)
        mark(dirfd(opened), ours);
    return opened;
}

struct dirent64 *readdir64(DIR *from)
{
    REAL(readdir64);
    GUARD(LIST, is_marked(dirfd(from)), 0, NULL)
    return real(from);
}

int closedir(DIR *from)
{
    REAL(closedir);
    mark(dirfd(from), 0);
    return real(from);
}
