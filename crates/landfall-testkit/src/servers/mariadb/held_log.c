/* Preloaded into a MariaDB server: while the file named by LANDFALL_HOLD exists, every write and sync of InnoDB's log
   blocks. This extends the short time between making a commit visible and making it durable for as long as a test
   needs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static void wait_if_held(int fd) {
    const char *held = getenv("LANDFALL_HOLD");
    if (!held || access(held, F_OK) != 0) return;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return;
    path[length] = 0;
    if (!strstr(path, "ib_logfile")) return;
    struct timespec pause = {0, 1000000};
    while (access(held, F_OK) == 0) nanosleep(&pause, NULL);
}

#define HELD_WRITE(name)                                                              \
    ssize_t name(int fd, const void *bytes, size_t count, off64_t at) {               \
        ssize_t (*real)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, #name); \
        wait_if_held(fd);                                                             \
        return real(fd, bytes, count, at);                                            \
    }
#define HELD_SYNC(name)                                 \
    int name(int fd) {                                  \
        int (*real)(int) = dlsym(RTLD_NEXT, #name);     \
        wait_if_held(fd);                               \
        return real(fd);                                \
    }

HELD_WRITE(pwrite)
HELD_WRITE(pwrite64)
HELD_SYNC(fsync)
HELD_SYNC(fdatasync)
