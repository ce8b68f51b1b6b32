//! The opcodes of pickle. Source: Lib/pickletools.py of Python 3.14.

macro_rules! opcodes {
    ($($name:ident = $code:literal;)*) => {
        $(pub(super) const $name: u8 = $code;)*

        /// Returns the name of an opcode; empty if the byte is not an opcode.
        pub(super) fn name(code: u8) -> &'static str {
            match code {
                $($name => stringify!($name),)*
                b'F' => "FLOAT",
                b'S' => "STRING",
                b'V' => "UNICODE",
                b'l' => "LIST",
                b'd' => "DICT",
                b'g' => "GET",
                b'p' => "PUT",
                b'P' => "PERSID",
                b'2' => "DUP",
                b'i' => "INST",
                b'o' => "OBJ",
                0x82 => "EXT1",
                0x83 => "EXT2",
                0x84 => "EXT4",
                0x97 => "NEXT_BUFFER",
                0x98 => "READONLY_BUFFER",
                _ => "",
            }
        }
    };
}

// The opcodes that are accepted. The others are of protocol 0, whose persistent ids torch cannot read back, or are
// never written.
opcodes! {
    MARK = b'(';
    STOP = b'.';
    POP = b'0';
    POP_MARK = b'1';
    BINFLOAT = b'G';
    INT = b'I';
    BININT = b'J';
    BININT1 = b'K';
    LONG = b'L';
    BININT2 = b'M';
    NONE = b'N';
    BINPERSID = b'Q';
    REDUCE = b'R';
    BINSTRING = b'T';
    SHORT_BINSTRING = b'U';
    BINUNICODE = b'X';
    EMPTY_LIST = b']';
    APPEND = b'a';
    BUILD = b'b';
    GLOBAL = b'c';
    APPENDS = b'e';
    BINGET = b'h';
    LONG_BINGET = b'j';
    BINPUT = b'q';
    LONG_BINPUT = b'r';
    SETITEM = b's';
    TUPLE = b't';
    EMPTY_TUPLE = b')';
    SETITEMS = b'u';
    EMPTY_DICT = b'}';
    PROTO = 0x80;
    NEWOBJ = 0x81;
    TUPLE1 = 0x85;
    TUPLE2 = 0x86;
    TUPLE3 = 0x87;
    NEWTRUE = 0x88;
    NEWFALSE = 0x89;
    LONG1 = 0x8a;
    LONG4 = 0x8b;
    BINBYTES = b'B';
    SHORT_BINBYTES = b'C';
    SHORT_BINUNICODE = 0x8c;
    BINUNICODE8 = 0x8d;
    BINBYTES8 = 0x8e;
    EMPTY_SET = 0x8f;
    ADDITEMS = 0x90;
    FROZENSET = 0x91;
    NEWOBJ_EX = 0x92;
    STACK_GLOBAL = 0x93;
    MEMOIZE = 0x94;
    FRAME = 0x95;
    BYTEARRAY8 = 0x96;
}
