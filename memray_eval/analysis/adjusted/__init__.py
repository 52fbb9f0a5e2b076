"""Corrects a judge's figures by what people said of a part of the answers: the file that keeps
labelled verdicts, the estimators, and how their figures are told."""
