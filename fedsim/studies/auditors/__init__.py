"""Audits of auditors: is a lower bound on epsilon as often wrong as it says?"""
