"""The formats: conversion, writing and comparison of each."""
