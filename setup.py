"""Packaging; the version is read without importing the package, which would import TensorFlow."""

import pathlib
import re

from setuptools import find_packages, setup

HERE = pathlib.Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (HERE / "tfjac/__init__.py").read_text())[1]

DOCS = ["mkdocs>=1.6"]
EXAMPLES = ["matplotlib>=3.7", "rich>=13", "scikit-learn>=1.3", "scipy>=1.10"]

setup(
    name="tfjac",
    version=VERSION,
    description="Jacobians of TensorFlow graphs: six strategies, one plan, built once",
    long_description=(HERE / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["tfjac", "tfjac.*"]),
    package_data={"tfjac": ["py.typed", "audit/table.csv"]},
    python_requires=">=3.10",
    install_requires=["absl-py>=1.0", "numpy>=1.23", "tensorflow>=2.16"],
    extras_require={
        # torch from PyPI is a CUDA build on Linux; its CPU build, if installed before, will do.
        "bench": ["jax>=0.4.30", "matplotlib>=3.7", "rich>=13", "torch>=2.3,<2.14"],
        "docs": DOCS,
        "examples": EXAMPLES,
        "gpu": ["tensorflow[and-cuda]>=2.16"],
        "plot": ["matplotlib>=3.7"],
        "sparse": ["scipy>=1.10"],
        "test": [*DOCS, *EXAMPLES, "hypothesis>=6.80", "mpmath>=1.3", "pytest>=7.4"]
        + ["pytest-xdist>=3.3"],
    },
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Mathematics",
        "Typing :: Typed",
    ],
)
