"""System calls that an engine child never makes, by number: what the filter (seccomp.py) refuses.

Each has its number on x86_64 and on aarch64; None where the architecture has no such call. From 424 on
the numbers are the same everywhere. The kernel's own lists: arch/x86/entry/syscalls/syscall_64.tbl and
include/uapi/asm-generic/unistd.h.
"""

Numbers = tuple[int | None, int | None]

NEWEST = 450  # calls that are younger than this list are answered as an older kernel would: there is no such call

# To the outside: new sockets. Those that a child was given at its start go on working.
SOCKETS: dict[str, Numbers] = {
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242), "setsockopt": (54, 208), "sendmmsg": (307, 269),
    "recvmmsg": (299, 243),
}  # fmt: skip

# Another program, another process. A thread is a clone too: seccomp.py looks at its flags.
PROGRAMS: dict[str, Numbers] = {
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281), "uselib": (134, None),
    "memfd_create": (319, 279), "memfd_secret": (447, 447),
}  # fmt: skip

# Other processes of the same user, the service among them: read, steered, stopped, slowed down.
NEIGHBOURS: dict[str, Numbers] = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "migrate_pages": (256, 238),
    "move_pages": (279, 239), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
    "kill": (62, 129), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119), "sched_setattr": (314, 274),
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186), "msgsnd": (69, 189),
    "msgrcv": (70, 188), "msgctl": (71, 187), "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191),
    "semtimedop": (220, 192), "mq_open": (240, 180), "mq_unlink": (241, 181),
}  # fmt: skip

# Another root, another namespace, another user; files by a handle instead of a path.
MOUNTS: dict[str, Numbers] = {
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "mknod": (133, None), "mknodat": (259, 33),
    "setuid": (105, 146), "setgid": (106, 144), "setreuid": (113, 145), "setregid": (114, 143),
    "setresuid": (117, 147), "setresgid": (119, 149), "setgroups": (116, 159), "setfsuid": (122, 151),
    "setfsgid": (123, 152), "capset": (126, 91), "personality": (135, 92),
}  # fmt: skip

# Parts of the kernel that are large, privileged, or have been the way in before.
KERNEL: dict[str, Numbers] = {
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "create_module": (174, None), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "io_setup": (206, 0), "io_submit": (209, 2), "splice": (275, 76),
    "tee": (276, 77), "vmsplice": (278, 75), "fanotify_init": (300, 262), "fanotify_mark": (301, 263),
    "inotify_init": (253, None), "inotify_init1": (294, 26), "syslog": (103, 116), "acct": (163, 89),
    "swapon": (167, 224), "swapoff": (168, 225), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "sethostname": (170, 161), "setdomainname": (171, 162), "vhangup": (153, 58), "lookup_dcookie": (212, 18),
    "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None),
}  # fmt: skip

NEVER: dict[str, Numbers] = {**SOCKETS, **PROGRAMS, **NEIGHBOURS, **MOUNTS, **KERNEL}

# A child that runs queries changes no file; one that imports does, in its own folder.
CHANGES: dict[str, Numbers] = {
    "creat": (85, None), "truncate": (76, 45), "ftruncate": (77, 46), "fallocate": (285, 47), "rename": (82, None),
    "renameat": (264, 38), "renameat2": (316, 276), "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None),
    "link": (86, None), "linkat": (265, 37), "unlink": (87, None), "unlinkat": (263, 35), "symlink": (88, None),
    "symlinkat": (266, 36), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "chown": (92, None),
    "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None),
    "futimesat": (261, None), "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
}  # fmt: skip

# Their flags are in memory, where a filter can not look; libc falls back to the older calls.
UNREADABLE: dict[str, Numbers] = {"clone3": (435, 435), "openat2": (437, 437)}

# Refused or not by their arguments; seccomp.py says how.
OPEN: Numbers = (2, None)
OPENAT: Numbers = (257, 56)
CLONE: Numbers = (56, 220)
TGKILL: Numbers = (234, 131)
PRLIMIT: Numbers = (302, 261)
SECCOMP: Numbers = (317, 277)
