/// What a system says of the file system that a file is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystem {
    pub kind: FileSystemKind,
    /// What is left for an ordinary account.
    pub free_bytes: u64,
    pub total_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystemKind {
    /// Of this machine, or of a kind that nothing is known about.
    Local,
    /// Gone with the power, or with the container.
    Memory(&'static str),
    /// Locks and syncs are up to another machine, or to a program.
    Remote(&'static str),
}

impl FileSystemKind {
    /// By the number that Linux gives each kind (`f_type` of statfs).
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

    /// Whether writes will soon fail: less than a fiftieth is left, and that is not much either.
    pub fn is_nearly_full(self) -> bool {
        let least = (self.total_bytes / 50).clamp(Self::LEAST_FREE_BYTES, Self::ENOUGH_FREE_BYTES);
        self.free_bytes < least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_nearly_full_by_what_is_left_of_it_and_how_much_that_is() {
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
    fn kinds_are_told_apart_by_their_number_whatever_its_sign() {
        assert_eq!(FileSystemKind::from_linux_magic(0xef53), FileSystemKind::Local);
        assert_eq!(FileSystemKind::from_linux_magic(0x0102_1994), FileSystemKind::Memory("tmpfs"));
        assert_eq!(FileSystemKind::from_linux_magic(0x6969), FileSystemKind::Remote("nfs"));
        assert_eq!(FileSystemKind::from_linux_magic(0xff53_4d42_u32 as i32 as u64), FileSystemKind::Remote("smb"));
    }
}
