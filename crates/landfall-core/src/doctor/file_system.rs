/// The file system that contains a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystem {
    pub kind: FileSystemKind,
    /// Free for an unprivileged account.
    pub free_bytes: u64,
    pub total_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystemKind {
    /// Local to this machine, or of an unknown kind.
    Local,
    /// Lost on a power cut or with the container.
    Memory(&'static str),
    /// Locks and syncs depend on another machine or a user-space program.
    Remote(&'static str),
}

impl FileSystemKind {
    /// Classifies by Linux's `f_type` of `statfs`.
    pub fn from_linux_magic(number: u64) -> Self {
        match number & 0xffff_ffff {
            0x0102_1994 => Self::Memory("tmpfs"),
            0x8584_58f6 => Self::Memory("ramfs"),
            0x6969 => Self::Remote("nfs"),
            0x517b | 0xff53_4d42 | 0xfe53_4d42 => Self::Remote("smb"),
            0x0102_1997 => Self::Remote("9p"),
            0x00c3_6400 => Self::Remote("ceph"),
            0x5346_414f => Self::Remote("afs"),
            0x6573_5546 => Self::Remote("fuse"),
            _ => Self::Local,
        }
    }
}

impl FileSystem {
    const LEAST_FREE_BYTES: u64 = 64 * 1024 * 1024;
    const ENOUGH_FREE_BYTES: u64 = 1024 * 1024 * 1024;

    /// Returns whether less than 2 % is free, a threshold clamped to between 64 MiB and 1 GiB.
    pub fn is_nearly_full(self) -> bool {
        let least = (self.total_bytes / 50).clamp(Self::LEAST_FREE_BYTES, Self::ENOUGH_FREE_BYTES);
        self.free_bytes < least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_full_depends_on_share_and_size() {
        const GIB: u64 = 1 << 30;
        for (free_bytes, total_bytes, expected) in [
            (GIB, 20 * GIB, false),
            (GIB / 4, 20 * GIB, true),
            (2 * GIB, 1000 * GIB, false),
            (GIB / 2, 1000 * GIB, true),
            (GIB / 32, GIB, true),
            (GIB / 8, GIB, false),
            (0, 0, true),
        ] {
            let disk = FileSystem { kind: FileSystemKind::Local, free_bytes, total_bytes };
            assert_eq!(disk.is_nearly_full(), expected, "{free_bytes} of {total_bytes}");
        }
    }

    #[test]
    fn kind_is_recognised_whatever_the_sign_of_its_number() {
        assert_eq!(FileSystemKind::from_linux_magic(0xef53), FileSystemKind::Local);
        assert_eq!(FileSystemKind::from_linux_magic(0x0102_1994), FileSystemKind::Memory("tmpfs"));
        assert_eq!(FileSystemKind::from_linux_magic(0x6969), FileSystemKind::Remote("nfs"));
        assert_eq!(FileSystemKind::from_linux_magic(0xff53_4d42_u32 as i32 as u64), FileSystemKind::Remote("smb"));
    }
}
